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
  /** The limiter that decides. In Python, a layer without one makes a limiter from its other options. */
  limiter: Limiter;
  /**
   * The policy of requests: a name, a notation, a Policy, a list of these, or a function of the request. It may return
   * nothing, for no limit. A name is one limit in all places, and a notation counts for the place where it is written.
   */
  policy: PolicyOption<Request>;
  /** A limit of the whole application. It is checked together with `policy` in one round trip. */
  application?: PolicyChoice<Request> | undefined;
  // options end
  // options: limit
  /**
   * The key of a request: a function of the request, or a key helper, such as the one for the client's address.
   * Default: the client's address.
   */
  key?: KeyFunction<Request> | undefined;
  /**
   * The units that a request consumes: a number, numbers by the names of units, or a function of the request. Each
   * policy takes the units that it counts. A function of Python may return 0, which charges nothing. Default: 1.
   */
  cost?: CostOption<Request> | undefined;
  /**
   * A function of the request that returns true for a request without a limit. The `skip` of a layer applies to all its
   * limits.
   */
  skip?: ((request: Request) => Awaitable<boolean>) | undefined;
  /**
   * A function that may answer a refused request. It may answer the request, or return a value, which becomes the body
   * instead of the problem. In Node, `'throw'` gives the refusal to the error handling of the framework, as an error
   * with `status` and `decision`. An answer without a status gets the status of the refusal.
   */
  onDenied?: ((request: Request, decision: Decision, response: Response) => unknown) | 'throw' | undefined;
  /**
   * The fields that announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`,
   * `legacy` or `off`. Default: `both`.
   */
  headers?: HeaderChoice | undefined;
  /**
   * A function of the request and the response, which Tidegate calls at the end of the response. If it returns true,
   * the units of the request go back. In Node, a function of one argument gets the response, so the first argument has
   * the type of both.
   */
  refundWhen?: ((request: Request & Response, response: Response) => Awaitable<boolean>) | undefined;
  /**
   * A function of the request and the response, which Tidegate calls at the end of the response. It returns the actual
   * cost of the request, or nothing to keep the charge. With numbers by the names of units, each policy takes its
   * units, and the others stay. With several policies, one number is for the policies with a cost, or for all if none
   * has one. A list has a number for each policy, and a map has numbers by the names of policies. In Node, a function
   * of one argument gets the response.
   */
  settle?: SettleFunction<Request, Response> | undefined;
  /**
   * The end of a hold of a `concurrency` limit: the end of the `response`, or of the `handler`, which may run longer.
   * In Node, `settle` and `refundWhen` are called at the same moment. Default: `response`.
   */
  holdUntil?: 'response' | 'handler' | undefined;
  /** The metadata of a request for the journal: a text, bytes, or a function of the request. */
  meta?: MetaOption<Request> | undefined;
  /**
   * The class of a request, one of the `priorities` of a policy: a name, or a function of the request. The function may
   * return nothing, for no class. With several policies, it is for those with classes.
   */
  priority?: PriorityOption<Request> | undefined;
  /** The HTTP methods that are limited. HEAD counts as GET. Default: all of them. */
  methods?: readonly string[] | undefined;
  /** Give each HTTP method a separate budget. HEAD shares the budget of GET. Default: false. */
  perMethod?: boolean | undefined;
  /**
   * False turns the limit off, as if it were not written. Default: the environment variable `TIDEGATE_ENABLED`, else
   * true.
   */
  enabled?: boolean | undefined;
  // options end
}

/** The options of a layer over routes that may have limits of their own. */
export interface LayerOptions<Request, Response> extends Omit<RateLimitOptions<Request, Response>, 'policy'> {
  /** One limit for all requests to routes that have none themselves. Without it only routes that name one are limited. */
  policy?: PolicyOption<Request> | undefined;
  // options: default
  /** Use it instead of `policy` to give a separate budget to each route without a limit. */
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
