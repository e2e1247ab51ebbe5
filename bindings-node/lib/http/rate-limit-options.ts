// The options of every adapter, checked once, so that no request has to.

import type { Decision } from '../decision.js';
import { ConfigError } from '../errors.js';
import { Limiter, policyRefIn } from '../limiter.js';
import { native, throwIfFailed } from '../native.js';
import { Policy, type PolicyLike } from '../policy.js';
import type { HeaderChoice } from './fields.js';
import { type KeyOption, keyOf } from './keys.js';
import type { Awaitable, RequestAdapter } from './request-adapter.js';

/** Units a request consumes: a whole number, or a function of the request. */
export type CostOption<Request> = number | ((request: Request) => Awaitable<number>);

/** A policy with a key and a cost of its own. */
export interface PolicyEntry<Request> {
  policy: PolicyLike;
  /** Its key. Default: the adapter's `key`. */
  key?: KeyOption<Request>;
  /** Units it consumes. Default: the adapter's `cost`. */
  cost?: CostOption<Request>;
}

/** One policy, or several that must all admit. Several are checked in one round trip. */
export type PolicyChoice<Request> = PolicyLike | PolicyEntry<Request> | readonly (PolicyLike | PolicyEntry<Request>)[];

/** The options of every adapter. Functions get the framework's request. */
export interface RateLimitOptions<Request, Response> {
  /** The limiter that decides. */
  limiter: Limiter;
  /** The policy: a name, a notation or a Policy, several of them, or a function of the request. */
  policy: PolicyChoice<Request> | ((request: Request) => Awaitable<PolicyChoice<Request>>);
  /** The key. Default: `clientIp()`. */
  key?: KeyOption<Request>;
  /** Units a request consumes. Default 1. */
  cost?: CostOption<Request>;
  /** Returns true for requests that are not limited. */
  skip?: (request: Request) => Awaitable<boolean>;
  /**
   * Called when a request is refused. It may answer itself. A value that it returns is sent as the body instead of the problem.
   * When it does neither, the problem is sent.
   */
  onDenied?: (request: Request, decision: Decision, response: Response) => unknown;
  /** Which fields announce the limits: `both` (default), `ietf`, `legacy` or `off`. */
  headers?: HeaderChoice;
  /**
   * Called when the response has ended. When it returns true, what the request consumed is given back. A function of one
   * argument gets the response.
   */
  refundWhen?:
    | ((request: Request, response: Response) => Awaitable<boolean>)
    | ((response: Response) => Awaitable<boolean>);
  /** Only requests of these methods are limited. Default: all. */
  methods?: readonly string[];
}

/** A policy with its key and its cost. */
export interface LimitedEntry<Request> {
  readonly policy: PolicyLike;
  readonly key: (request: Request) => Awaitable<string>;
  readonly cost: CostOption<Request>;
}

/** An entry whose cost does not depend on the request. */
export interface FixedCostEntry<Request> extends LimitedEntry<Request> {
  readonly cost: number;
}

function hasFixedCost<Request>(entry: LimitedEntry<Request>): entry is FixedCostEntry<Request> {
  return typeof entry.cost === 'number';
}

const NAMES: ReadonlySet<string> = new Set<keyof RateLimitOptions<unknown, unknown>>([
  'limiter',
  'policy',
  'key',
  'cost',
  'skip',
  'onDenied',
  'headers',
  'refundWhen',
  'methods',
]);

/** Options that were found valid. */
export class Settings<Request, Response> {
  readonly limiter: Limiter;
  /** The policies, unless they depend on the request. */
  readonly entries: readonly LimitedEntry<Request>[] | undefined;
  /** The only policy, when nothing but the key depends on the request. */
  readonly only: FixedCostEntry<Request> | undefined;
  readonly headers: HeaderChoice;
  readonly methods: ReadonlySet<string> | undefined;
  readonly #policy: RateLimitOptions<Request, Response>['policy'];
  readonly #key: (request: Request) => Awaitable<string>;
  readonly #cost: CostOption<Request>;

  constructor(
    readonly options: RateLimitOptions<Request, Response>,
    readonly adapter: RequestAdapter<Request>,
    clientIp: () => (request: Request) => string,
    /** The route that these options belong to, if the framework says it. */
    readonly route = '',
  ) {
    const where = adapter.name;
    if (typeof options !== 'object' || options === null) throw new ConfigError(`${where}: give options`);
    for (const name of Object.keys(options)) {
      if (!NAMES.has(name)) {
        throw new ConfigError(`${where} has no option ${name}: it has ${[...NAMES].join(', ')}`);
      }
    }
    if (!(options.limiter instanceof Limiter)) {
      throw new ConfigError(`${where}: the option limiter is no Limiter of tidegate`);
    }
    for (const name of ['skip', 'onDenied', 'refundWhen'] as const) {
      if (options[name] !== undefined && typeof options[name] !== 'function') {
        throw new ConfigError(`${where}: the option ${name} must be a function`);
      }
    }
    this.limiter = options.limiter;
    this.headers = options.headers ?? 'both';
    throwIfFailed(native.headerChoice(String(this.headers)));
    this.methods = options.methods && new Set(options.methods.map((method) => method.toUpperCase()));
    this.#key = keyOf(options.key ?? clientIp(), where);
    this.#cost = options.cost ?? 1;
    this.#policy = options.policy;
    if (typeof this.#policy !== 'function') {
      this.entries = this.#entries(this.#policy);
      // A policy that does not exist is an error when the service starts, not at the first request.
      for (const { policy } of this.entries) policyRefIn(this.limiter, policy);
    }
    const [first, second] = this.entries ?? [];
    const isOnly = first !== undefined && second === undefined && hasFixedCost(first) && options.skip === undefined;
    this.only = isOnly ? first : undefined;
  }

  /** The policies of a request. */
  async entriesOf(request: Request): Promise<readonly LimitedEntry<Request>[]> {
    if (this.entries !== undefined) return this.entries;
    const policy = this.#policy as (request: Request) => Awaitable<PolicyChoice<Request>>;
    return this.#entries(await policy(request));
  }

  #entry(policy: PolicyLike, key: LimitedEntry<Request>['key'], cost: CostOption<Request>): LimitedEntry<Request> {
    if (this.route === '' || !isUnnamed(this.limiter, policy)) return { policy, key, cost };
    const forRoute = (name: string): string => `${this.route} ${name}`;
    const routeKey = (request: Request): Awaitable<string> => {
      const name = key(request);
      return typeof name === 'string' ? forRoute(name) : name.then(forRoute);
    };
    return { policy, key: routeKey, cost };
  }

  #entries(choice: PolicyChoice<Request>): readonly LimitedEntry<Request>[] {
    const where = this.adapter.name;
    const choices: readonly (PolicyLike | PolicyEntry<Request>)[] = Array.isArray(choice) ? choice : [choice];
    if (choices.length === 0) throw new ConfigError(`${where}: policy is an empty list: name at least one`);
    return choices.map((entry) => {
      if (entry === undefined || entry === null || entry === '') {
        throw new ConfigError(
          `${where}: policy is ${JSON.stringify(entry)}: name a policy or write a notation; skip leaves out requests`,
        );
      }
      if (typeof entry === 'string' || !('policy' in entry)) return this.#entry(entry, this.#key, this.#cost);
      const key = entry.key === undefined ? this.#key : keyOf(entry.key, where);
      return this.#entry(entry.policy, key, entry.cost ?? this.#cost);
    });
  }
}

/**
 * Whether a policy has no name but was written where it is used. A policy with a name is one limit wherever it is used; a
 * notation is a limit of the route where it is written.
 */
function isUnnamed(limiter: Limiter, policy: PolicyLike): boolean {
  const { name } = policyRefIn(limiter, policy);
  try {
    return String(new Policy(name)) === name;
  } catch {
    return false;
  }
}
