// The options of every adapter: their types, and the checks of their values. They are checked once, not for each request.

import { METHODS } from 'node:http';

import { type Cost, isUnits } from '../cost.js';
import type { Decision } from '../decision.js';
import { ConfigError, CostError, checkConstant, describe } from '../errors.js';
import { declaredNames, declaredOptions } from '../given-options.js';
import { checkTarget, type Limiter } from '../limiter.js';
import { type binding, native } from '../native.js';
import type { PolicyLike } from '../policy.js';
import type { ActualCost } from '../settled.js';
import type { Awaitable } from './adapter.js';
import { checkHeaders, type HeaderChoice } from './fields.js';
import type { KeyFunction } from './keys.js';

/** The units that a request consumes: a whole number, numbers by the names of units, or a function of the request. */
export type CostOption<Request> = Cost | ((request: Request) => Awaitable<Cost>);

/** The metadata of a request for the journal: a text, bytes, or a function of the request that returns them, or nothing. */
export type MetaOption<Request> =
  | string
  | Uint8Array
  | ((request: Request) => Awaitable<string | Uint8Array | null | undefined>);

/** The class of a request: a name, or a function of the request that returns one, or nothing. */
export type PriorityOption<Request> = string | ((request: Request) => Awaitable<string | null | undefined>);

/** A policy with its own key and cost. */
export interface PolicyEntry<Request> {
  policy: PolicyLike;
  /** Its key. Default: the adapter's `key`. */
  key?: KeyFunction<Request> | undefined;
  /** The units that it consumes. Default: the adapter's `cost`. */
  cost?: CostOption<Request> | undefined;
}

/** One policy, or several that must all admit. Several are checked in one round trip. */
export type PolicyChoice<Request> = PolicyLike | PolicyEntry<Request> | readonly (PolicyLike | PolicyEntry<Request>)[];

/** A function that chooses the policy of a request. If it returns nothing, the request has no limit. */
export type PolicyFunction<Request> = (
  request: Request,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing for some requests has this type
) => Awaitable<PolicyChoice<Request> | null | undefined | void>;

/** The policy of requests, or a function that chooses it. */
export type PolicyOption<Request> = PolicyChoice<Request> | PolicyFunction<Request>;

/** The function `settle`, which returns the actual cost, or nothing to keep the consumed units. */
export type SettleFunction<Request, Response> = (
  request: Request & Response,
  response: Response,
  // biome-ignore lint/suspicious/noConfusingVoidType: a function that returns nothing for some requests has this type
) => Awaitable<ActualCost | null | undefined | void>;

/** The options of every adapter. Functions get the framework's request. */
export interface RateLimitOptions<Request, Response> {
  // options: layer
  /** The limiter that decides. */
  limiter: Limiter;
  /**
   * The policy of requests: a name, a notation or a Policy, several of them, or a function of the request, which may
   * return nothing for no limit. A name is one limit wherever it is used; a notation counts for the place where it is
   * written.
   */
  policy: PolicyOption<Request>;
  /** A limit of the whole application, asked together with `policy` in one round trip. */
  application?: PolicyChoice<Request> | undefined;
  // options end
  // options: limit
  /**
   * The key of a request: a function of the request, or what a helper such as that of the client's address returns.
   * Default: the client's address.
   */
  key?: KeyFunction<Request> | undefined;
  /**
   * The units that a request consumes: a number, numbers by the names of units, or a function of the request. Of
   * numbers by names each policy takes those that it counts. Default: 1.
   */
  cost?: CostOption<Request> | undefined;
  /** A function of the request; true exempts the request. That of a layer applies to each of its limits as well. */
  skip?: ((request: Request) => Awaitable<boolean>) | undefined;
  /**
   * Called when a request is refused, and may answer it. It may answer itself; a value that it returns is sent as the
   * body instead of the problem. `'throw'` gives the refusal to the framework's error handling, as an error with
   * `status` and `decision`. An answer without a status of its own has that of the refusal.
   */
  onDenied?: ((request: Request, decision: Decision, response: Response) => unknown) | 'throw' | undefined;
  /**
   * Which fields announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`, `legacy`
   * or `off`. Default: `both`.
   */
  headers?: HeaderChoice | undefined;
  /**
   * Called when the response has ended, with the request and the response. True gives back what the request consumed. A
   * function of one argument gets the response, so the first argument has the type of both.
   */
  refundWhen?: ((request: Request & Response, response: Response) => Awaitable<boolean>) | undefined;
  /**
   * Called when the response has ended, with the request and the response: the units that the request should have
   * consumed; nothing is as many as it did. Of numbers by the names of units each policy takes those that it counts,
   * and others stay. Of several policies one number is for those that name a cost, or for all where none does; a list
   * has a number for each, a map one for each policy that it names. A function of one argument gets the response.
   */
  settle?: SettleFunction<Request, Response> | undefined;
  /**
   * How long units of a `concurrency` limit are held: to the end of the `response`, or to that of the `handler`, which
   * may run longer. `settle` and `refundWhen` are called at the same moment. Default: `response`.
   */
  holdUntil?: 'response' | 'handler' | undefined;
  /** What the journal remembers of a request: a text, bytes, or a function of the request. */
  meta?: MetaOption<Request> | undefined;
  /**
   * The class of a request, one of those that a policy declares with its option `priorities`: a name, or a function of
   * the request, which may return nothing for none. Of several policies it is for those that have classes.
   */
  priority?: PriorityOption<Request> | undefined;
  /** The HTTP methods that are limited. HEAD counts as GET. Default: all of them. */
  methods?: readonly string[] | undefined;
  /** Whether each HTTP method has a budget of its own. HEAD shares that of GET. Default: false. */
  perMethod?: boolean | undefined;
  /**
   * False: nothing is limited, as if the limit were not written. Default: the environment variable `TIDEGATE_ENABLED`,
   * else true.
   */
  enabled?: boolean | undefined;
  // options end
}

/** The options of a layer over routes that may have limits of their own. */
export interface LayerOptions<Request, Response> extends Omit<RateLimitOptions<Request, Response>, 'policy'> {
  /** One limit for all requests to routes that have none themselves. Without it only routes that name one are limited. */
  policy?: PolicyOption<Request> | undefined;
  // options: default
  /** In place of `policy`: a notation here is a budget of each route that has no limit of its own. */
  default?: PolicyOption<Request> | undefined;
  // options end
}

/** The options of a route under a layer. They override those of the layer. */
export type RouteOptions<Request, Response> = {
  [Name in Exclude<keyof RateLimitOptions<Request, Response>, 'application'>]?:
    | RateLimitOptions<Request, Response>[Name]
    | undefined;
};

const isFunction = (value: unknown): boolean => typeof value === 'function';
/** The test of a value, and a description of valid ones. */
type Check = readonly [fits: (value: unknown) => boolean, expected: string];

/** The checks by the kind of an option. Other values are checked where they are used. */
const CHECKS: Readonly<Record<string, Check>> = {
  Flag: [(value) => typeof value === 'boolean', 'true or false'],
  OptionalFlag: [(value) => typeof value === 'boolean', 'true or false'],
  RequestFunction: [isFunction, 'a function'],
  ResponseFunction: [isFunction, 'a function'],
  ActualCost: [isFunction, 'a function'],
  Refusal: [(value) => isFunction(value) || value === 'throw', "a function, or 'throw'"],
  RequestPriority: [
    (value) => typeof value === 'string' || isFunction(value),
    'the name of a class, or a function of the request',
  ],
  RequestMeta: [
    (value) => typeof value === 'string' || isFunction(value) || value instanceof Uint8Array,
    'a text, bytes, or a function of the request',
  ],
};

/** The names of the options of a middleware, in the order in which messages list them. */
export const LIMIT_NAMES: readonly string[] = [
  ...declaredNames('layer').filter((name) => name !== 'default'),
  ...declaredNames('limit'),
];

/** The names of the options of a route under a layer. */
export const ROUTE_NAMES: readonly string[] = LIMIT_NAMES.filter((name) => name !== 'application');

function checkOf({ kind, words }: binding.DeclaredOption): Check | undefined {
  if (words.length === 0) return CHECKS[kind];
  return [(value) => words.includes(value as string), words.map((word) => `'${word}'`).join(' or ')];
}

/** Checks the values of the options that are there. Their names were checked before. */
export function checkValues(options: Partial<LayerOptions<never, never>>, where: string): void {
  const { limiter, cost, headers, methods, meta } = options;
  if (limiter !== undefined) checkTarget({ limiter }, where);
  for (const option of declaredOptions('limit')) {
    const { name } = option;
    const value: unknown = options[name as keyof typeof options];
    const check = checkOf(option);
    if (value === undefined || check === undefined || check[0](value)) continue;
    throw new ConfigError(`${where}: the option ${name} must be ${check[1]}, not ${describe(value)}`);
  }
  if (meta !== undefined && typeof meta !== 'function') checkConstant(meta, 'meta');
  checkCost(cost, where);
  if (headers !== undefined) checkHeaders(headers);
  if (methods !== undefined) checkMethods(methods, where);
}

/** Refuses a cost that no request could have. */
export function checkCost(cost: unknown, where: string): void {
  if (cost === undefined || typeof cost === 'function') return;
  if (isUnits(cost)) return;
  if (typeof cost !== 'number') {
    throw new CostError(
      `${where}: cost must be a whole number, an object such as { tokens: 1200 }, or a function of the request, not ${describe(cost)}`,
    );
  }
  if (!Number.isSafeInteger(cost) || cost < 1) {
    throw new CostError(
      `${where}: cost must be a whole number from 1 to 2^53 - 1, not ${cost}. Use skip for requests that cost nothing`,
    );
  }
}

function checkMethods(methods: unknown, where: string): void {
  if (!Array.isArray(methods)) {
    throw new ConfigError(`${where}: methods must be a list, such as ['POST'], not ${describe(methods)}`);
  }
  if (methods.length === 0) {
    throw new ConfigError(`${where}: methods is an empty list, which limits no request: leave it out to limit all`);
  }
  for (const method of methods as unknown[]) {
    if (typeof method === 'string' && METHODS.includes(method.toUpperCase())) continue;
    const near = typeof method === 'string' ? native.didYouMean(method, METHODS).replace(';', ':') : '';
    throw new ConfigError(`${where}: methods names ${describe(method)}, which is not an HTTP method${near}`);
  }
}
