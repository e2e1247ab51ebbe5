// The options of every adapter: their types, and the checks of their values, made once, so that no request has to.

import { METHODS } from 'node:http';

import type { Decision } from '../decision.js';
import { ConfigError, CostError, checkConstant, describe } from '../errors.js';
import { Limiter } from '../limiter.js';
import { native } from '../native.js';
import type { PolicyLike } from '../policy.js';
import type { ActualCost } from '../settled.js';
import type { Awaitable } from './adapter.js';
import { checkHeaders, type HeaderChoice } from './fields.js';
import type { KeyFunction } from './keys.js';

/** Units a request consumes: a whole number, or a function of the request. */
export type CostOption<Request> = number | ((request: Request) => Awaitable<number>);

/** What the journal remembers of a request: a text, bytes, or a function of the request that returns them, or nothing. */
export type MetaOption<Request> =
  | string
  | Uint8Array
  | ((request: Request) => Awaitable<string | Uint8Array | null | undefined>);

/** A policy with a key and a cost of its own. */
export interface PolicyEntry<Request> {
  policy: PolicyLike;
  /** Its key. Default: the adapter's `key`. */
  key?: KeyFunction<Request> | undefined;
  /** Units it consumes. Default: the adapter's `cost`. */
  cost?: CostOption<Request> | undefined;
}

/** One policy, or several that must all admit. Several are checked in one round trip. */
export type PolicyChoice<Request> = PolicyLike | PolicyEntry<Request> | readonly (PolicyLike | PolicyEntry<Request>)[];

/** A function that chooses the policy of a request. Nothing: the request has no limit. */
export type PolicyFunction<Request> = (
  request: Request,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing for some requests has this type
) => Awaitable<PolicyChoice<Request> | null | undefined | void>;

/** The policy of requests, or a function that chooses it. */
export type PolicyOption<Request> = PolicyChoice<Request> | PolicyFunction<Request>;

/** The options of every adapter. Functions get the framework's request. */
export interface RateLimitOptions<Request, Response> {
  /** The limiter that decides. */
  limiter: Limiter;
  /**
   * The policy: a name, a notation or a Policy, several of them, or a function of the request, which may return nothing for no
   * limit. A name is one limit wherever it is used; a notation counts for the place where it is written.
   */
  policy: PolicyOption<Request>;
  /** A limit of the whole application, asked together with `policy` in one round trip. */
  application?: PolicyChoice<Request> | undefined;
  /** Each method has a budget of its own; HEAD counts as GET. Default false. */
  perMethod?: boolean | undefined;
  /** The key. Default: `clientIp()`. */
  key?: KeyFunction<Request> | undefined;
  /** Units a request consumes. Default 1. */
  cost?: CostOption<Request> | undefined;
  /** Returns true for requests that are not limited. */
  skip?: ((request: Request) => Awaitable<boolean>) | undefined;
  /**
   * Called when a request is refused. It may answer itself. A value that it returns is sent as the body instead of the problem.
   * When it does neither, the problem is sent. The status is that of the refusal unless the answer has another one than 200.
   * `'throw'`: the refusal goes to the framework's error handling, as an error with
   * `status` and `decision`.
   */
  onDenied?: ((request: Request, decision: Decision, response: Response) => unknown) | 'throw' | undefined;
  /**
   * Which fields announce the limits: `both` (default), `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`,
   * `legacy` or `off`.
   */
  headers?: HeaderChoice | undefined;
  /**
   * Called when the response has ended. When it returns true, what the request consumed is given back. A function of one
   * argument gets the response, so the first argument has the type of both.
   */
  refundWhen?: ((request: Request & Response, response: Response) => Awaitable<boolean>) | undefined;
  /**
   * Called when the response has ended: the units that the request should have consumed. Nothing: as many as it did. A function of
   * one argument gets the response. Of several policies one number is for those that name a cost, or for all where none does; a
   * list has a number for each, a map one for each policy that it names.
   */
  settle?: // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing for some requests has this type
  ((request: Request & Response, response: Response) => Awaitable<ActualCost | null | undefined | void>) | undefined;
  /**
   * How long units of a `concurrency` limit are held: until the response has ended (default), or until the handler has ended too. A
   * client that leaves ends its response, and not its handler. `settle` and `refundWhen` are called at the same moment.
   */
  holdUntil?: 'response' | 'handler' | undefined;
  /** What the journal of the policy remembers of the request. */
  meta?: MetaOption<Request> | undefined;
  /** Only requests of these methods are limited. Default: all. */
  methods?: readonly string[] | undefined;
  /** False: nothing is limited. Default: the environment variable `TIDEGATE_ENABLED`, else true. */
  enabled?: boolean | undefined;
}

/** The options of a layer over routes that may have limits of their own. */
export interface LayerOptions<Request, Response> extends Omit<RateLimitOptions<Request, Response>, 'policy'> {
  /** One limit for all requests whose route has none of its own. Without it only routes that name one are limited. */
  policy?: PolicyOption<Request> | undefined;
  /** In place of `policy`: a notation here is a budget of each route that has no limit of its own. */
  default?: PolicyOption<Request> | undefined;
}

/** The options of a route under a layer; they override those of the layer. */
export type RouteOptions<Request, Response> = Partial<Omit<RateLimitOptions<Request, Response>, 'application'>>;

const isFunction = (value: unknown): boolean => typeof value === 'function';
const isBoolean = (value: unknown): boolean => typeof value === 'boolean';
const isMeta = (value: unknown): boolean =>
  typeof value === 'string' || isFunction(value) || value instanceof Uint8Array;

/** Whether a value is right, and what it must be; nothing for options whose values are checked elsewhere. */
type Check = readonly [fits: (value: unknown) => boolean, expected: string] | undefined;

/** The options of every adapter, in the order in which messages list them. */
const OPTIONS: Readonly<Record<keyof RateLimitOptions<never, never>, Check>> = {
  limiter: undefined,
  policy: undefined,
  application: undefined,
  perMethod: [isBoolean, 'true or false'],
  key: undefined,
  cost: undefined,
  skip: [isFunction, 'a function'],
  onDenied: [(value) => isFunction(value) || value === 'throw', "a function, or 'throw'"],
  headers: undefined,
  refundWhen: [isFunction, 'a function'],
  settle: [isFunction, 'a function'],
  holdUntil: [(value) => value === 'response' || value === 'handler', "'response' or 'handler'"],
  meta: [isMeta, 'a text, bytes, or a function of the request'],
  methods: undefined,
  enabled: undefined,
};

export const LIMIT_NAMES: readonly string[] = Object.keys(OPTIONS);

/** The names of the options of a route under a layer. */
export const ROUTE_NAMES: readonly string[] = LIMIT_NAMES.filter((name) => name !== 'application');

/** Checks the values of options whose names were found right, whichever of them are there. */
export function checkValues(options: Partial<LayerOptions<never, never>>, where: string): void {
  const { limiter, cost, headers, methods, meta } = options;
  if (limiter !== undefined && !(limiter instanceof Limiter)) {
    throw new ConfigError(`${where}: the option limiter is no Limiter of tidegate`);
  }
  for (const [name, check] of Object.entries(OPTIONS)) {
    const value: unknown = options[name as keyof typeof OPTIONS];
    if (value === undefined || check === undefined || check[0](value)) continue;
    throw new ConfigError(`${where}: the option ${name} is ${describe(value)}: it must be ${check[1]}`);
  }
  if (meta !== undefined && typeof meta !== 'function') checkConstant(meta, 'meta');
  checkCost(cost, where);
  if (headers !== undefined) checkHeaders(headers);
  if (methods !== undefined) checkMethods(methods, where);
}

/** Refuses a cost that no request could have. */
export function checkCost(cost: unknown, where: string): void {
  if (cost === undefined || typeof cost === 'function') return;
  if (typeof cost !== 'number') {
    throw new CostError(`${where}: cost is ${describe(cost)}: give a whole number, or a function of the request`);
  }
  if (!Number.isSafeInteger(cost) || cost < 1) {
    throw new CostError(
      `${where}: cost is ${cost}: it must be a whole number from 1 to 2^53 - 1; skip leaves out requests that cost nothing`,
    );
  }
}

function checkMethods(methods: unknown, where: string): void {
  if (!Array.isArray(methods)) {
    throw new ConfigError(`${where}: methods is ${describe(methods)}: give a list, such as ['POST']`);
  }
  if (methods.length === 0) {
    throw new ConfigError(`${where}: methods is an empty list, which limits no request: leave it out to limit all`);
  }
  for (const method of methods as unknown[]) {
    if (typeof method === 'string' && METHODS.includes(method.toUpperCase())) continue;
    const near = typeof method === 'string' ? native.didYouMean(method, METHODS).replace(';', ':') : '';
    throw new ConfigError(`${where}: methods names ${describe(method)}, which is no method of HTTP${near}`);
  }
}
