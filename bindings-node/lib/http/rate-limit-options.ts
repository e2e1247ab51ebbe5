// What every adapter can be told, and what is made of it once so that no request has to.

import type { Decision } from '../decision.js';
import { ConfigError } from '../errors.js';
import { Limiter, policyRefIn } from '../limiter.js';
import { done, native } from '../native.js';
import { Policy, type PolicyLike } from '../policy.js';
import type { HeaderChoice } from './fields.js';
import { type Awaitable, type KeyOption, keyOf } from './keys.js';
import type { RequestAdapter } from './request-adapter.js';

/** Units a request consumes: a whole number, or a function of the request. */
export type CostOption<Request> = number | ((request: Request) => Awaitable<number>);

/** A policy with a key and a cost of its own. */
export interface PolicyEntry<Request> {
  policy: PolicyLike;
  /** Who is limited by it; the adapter's `key` when not said. */
  key?: KeyOption<Request>;
  /** Units it consumes; the adapter's `cost` when not said. */
  cost?: CostOption<Request>;
}

/** One policy, or several that must all admit, which are asked in one round trip. */
export type PolicyChoice<Request> = PolicyLike | PolicyEntry<Request> | readonly (PolicyLike | PolicyEntry<Request>)[];

/** What every adapter can be told. Functions get the framework's request. */
export interface RateLimitOptions<Request, Response> {
  /** Who decides. */
  limiter: Limiter;
  /** By what: a policy's name or notation, several of them, or a function of the request. */
  policy: PolicyChoice<Request> | ((request: Request) => Awaitable<PolicyChoice<Request>>);
  /** Who is limited. Default: `clientIp()`. */
  key?: KeyOption<Request>;
  /** Units a request consumes. Default 1. */
  cost?: CostOption<Request>;
  /** Requests that are not limited: those for which it returns true. */
  skip?: (request: Request) => Awaitable<boolean>;
  /**
   * Called when a request is refused. It may answer by itself; what it returns is sent as the body instead of the problem; if
   * it does neither, the problem is sent.
   */
  onDenied?: (request: Request, decision: Decision, response: Response) => unknown;
  /** Which fields announce the limits: `both` (default), `ietf`, `legacy` or `off`. */
  headers?: HeaderChoice;
  /**
   * Called when the response is over; true gives back what the request consumed. A function of one argument gets the
   * response.
   */
  refundWhen?:
    | ((request: Request, response: Response) => Awaitable<boolean>)
    | ((response: Response) => Awaitable<boolean>);
  /** Only requests of these methods are limited. Default: all. */
  methods?: readonly string[];
}

/** A policy, who is limited by it, and what it costs. */
export interface Entry<Request> {
  readonly policy: PolicyLike;
  readonly key: (request: Request) => Awaitable<string>;
  readonly cost: CostOption<Request>;
}

/** An entry whose cost is known. */
export interface PlainEntry<Request> extends Entry<Request> {
  readonly cost: number;
}

function isPlain<Request>(entry: Entry<Request>): entry is PlainEntry<Request> {
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

/** Options that were looked at. */
export class Settings<Request, Response> {
  readonly limiter: Limiter;
  /** The policies, unless they depend on the request. */
  readonly entries: readonly Entry<Request>[] | undefined;
  /** The only policy, when nothing but the key depends on the request. */
  readonly only: PlainEntry<Request> | undefined;
  readonly headers: HeaderChoice;
  readonly methods: ReadonlySet<string> | undefined;
  readonly #policy: RateLimitOptions<Request, Response>['policy'];
  readonly #key: (request: Request) => Awaitable<string>;
  readonly #cost: CostOption<Request>;

  constructor(
    readonly options: RateLimitOptions<Request, Response>,
    readonly adapter: RequestAdapter<Request>,
    clientIp: () => (request: Request) => string,
    /** Where these options stand, if the framework knows. */
    readonly place = '',
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
    done(native.headerChoice(String(this.headers)));
    this.methods = options.methods && new Set(options.methods.map((method) => method.toUpperCase()));
    this.#key = keyOf(options.key ?? clientIp(), where);
    this.#cost = options.cost ?? 1;
    this.#policy = options.policy;
    if (typeof this.#policy !== 'function') {
      this.entries = this.#entries(this.#policy);
      // A policy that does not exist is found when the service starts, not when the first request comes.
      for (const { policy } of this.entries) policyRefIn(this.limiter, policy);
    }
    const [first, second] = this.entries ?? [];
    const isOnly = first !== undefined && second === undefined && isPlain(first) && options.skip === undefined;
    this.only = isOnly ? first : undefined;
  }

  /** The policies of a request. */
  async entriesOf(request: Request): Promise<readonly Entry<Request>[]> {
    if (this.entries !== undefined) return this.entries;
    const policy = this.#policy as (request: Request) => Awaitable<PolicyChoice<Request>>;
    return this.#entries(await policy(request));
  }

  #entry(policy: PolicyLike, key: Entry<Request>['key'], cost: CostOption<Request>): Entry<Request> {
    if (this.place === '' || !isInPlace(this.limiter, policy)) return { policy, key, cost };
    const here = (name: string): string => `${this.place} ${name}`;
    const placed = (request: Request): Awaitable<string> => {
      const name = key(request);
      return typeof name === 'string' ? here(name) : name.then(here);
    };
    return { policy, key: placed, cost };
  }

  #entries(choice: PolicyChoice<Request>): readonly Entry<Request>[] {
    const where = this.adapter.name;
    const several: readonly (PolicyLike | PolicyEntry<Request>)[] = Array.isArray(choice) ? choice : [choice];
    if (several.length === 0) throw new ConfigError(`${where}: policy is an empty list: name at least one`);
    return several.map((one) => {
      if (one === undefined || one === null || one === '') {
        throw new ConfigError(
          `${where}: policy is ${JSON.stringify(one)}: name a policy or write a notation; skip leaves out requests`,
        );
      }
      if (typeof one === 'string' || !('policy' in one)) return this.#entry(one, this.#key, this.#cost);
      const key = one.key === undefined ? this.#key : keyOf(one.key, where);
      return this.#entry(one.policy, key, one.cost ?? this.#cost);
    });
  }
}

/**
 * Whether a policy has no name, but was written where it is used. A policy with a name is one limit wherever it is used;
 * what was written in place is meant for this place.
 */
function isInPlace(limiter: Limiter, policy: PolicyLike): boolean {
  const { name } = policyRefIn(limiter, policy);
  try {
    return String(new Policy(name)) === name;
  } catch {
    return false;
  }
}
