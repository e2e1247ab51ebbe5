// Options that were found valid, as requests need them.

import { METHODS } from 'node:http';
import type { Decision } from '../decision.js';
import { ConfigError } from '../errors.js';
import { checkOptions } from '../given-options.js';
import { type Limiter, policyRefIn, usePolicyIn } from '../limiter.js';
import type { PolicyLike } from '../policy.js';
import { unwrapped } from '../tracing.js';
import type { HeaderChoice } from './fields.js';
import { keyOf } from './keys.js';
import { claim, isUnnamed, type Place, placedKey, Unrouted } from './notation-place.js';
import {
  type CostOption,
  checkCost,
  type LayerOptions,
  type MetaOption,
  type PolicyChoice,
  type PolicyEntry,
  type PolicyFunction,
} from './rate-limit-options.js';
import type { Awaitable, RequestAdapter } from './request-adapter.js';

type KeyReader<Request> = (request: Request) => Awaitable<string>;

/** A policy with its key and its cost. */
export interface LimitedEntry<Request> {
  readonly policy: PolicyLike;
  readonly key: KeyReader<Request>;
  readonly cost: CostOption<Request>;
  /** Whether the options name its cost: one number of `settle` is for those entries that do. */
  readonly namesCost: boolean;
  /** Where its notation is written; undefined for a policy with a name. */
  readonly place: Place<Request> | undefined;
}

/** An entry whose cost does not depend on the request. */
export interface FixedCostEntry<Request> extends LimitedEntry<Request> {
  readonly cost: number;
}

function hasFixedCost<Request>(entry: LimitedEntry<Request>): entry is FixedCostEntry<Request> {
  return typeof entry.cost === 'number';
}

/** What options and their layer say together of the requests of one place. */
export interface LimitParts<Request, Response> {
  /** The options; those of a route over those of its layer. Their names and values were checked. */
  readonly options: Partial<LayerOptions<Request, Response>>;
  /** Where the notation of `policy` is written. */
  readonly place: Place<Request>;
  /** Where `application` is written. */
  readonly applicationPlace: string;
  /** A request that one of them names is not limited. */
  readonly skips: readonly ((request: Request) => Awaitable<boolean>)[];
  readonly enabled: boolean;
}

/** What is called when a response has ended. */
export type AfterResponse = (...args: unknown[]) => unknown;

export class Settings<Request, Response> {
  readonly limiter: Limiter;
  /** The policies, unless they depend on the request. */
  readonly entries: readonly LimitedEntry<Request>[] | undefined;
  /** The only policy, when nothing but the key depends on the request. */
  readonly only: FixedCostEntry<Request> | undefined;
  readonly headers: HeaderChoice;
  readonly methods: ReadonlySet<string> | undefined;
  readonly enabled: boolean;
  readonly skips: LimitParts<Request, Response>['skips'];
  readonly holdUntil: 'response' | 'handler';
  readonly meta: MetaOption<Request> | undefined;
  readonly onDenied: ((request: Request, decision: Decision, response: Response) => unknown) | undefined;
  /** Whether refusals go to the framework's error handling. */
  readonly throwsRefusals: boolean;
  readonly refundWhen: AfterResponse | undefined;
  readonly settle: AfterResponse | undefined;
  readonly #application: readonly LimitedEntry<Request>[];
  readonly #policy: PolicyFunction<Request> | undefined;
  readonly #key: KeyReader<Request>;
  readonly #cost: CostOption<Request> | undefined;
  readonly #place: Place<Request>;
  readonly #perMethod: boolean;

  constructor(
    parts: LimitParts<Request, Response>,
    readonly adapter: RequestAdapter<Request>,
    clientIp: () => KeyReader<Request>,
  ) {
    const where = adapter.name;
    const { limiter, policy, application, key, cost, headers, methods, onDenied, meta, perMethod } = parts.options;
    this.limiter = unwrapped(limiter as Limiter);
    this.headers = headers ?? 'both';
    this.methods = methods && methodSet(methods);
    this.enabled = parts.enabled;
    this.skips = parts.skips;
    this.meta = meta;
    this.holdUntil = parts.options.holdUntil ?? 'response';
    if (this.holdUntil === 'handler' && adapter.seesHandlers !== true) {
      throw new ConfigError(
        `${where}: holdUntil cannot be 'handler', because the framework does not say here when a handler has ended: hold in the ` +
          'handler, with limiter.hold(policy, key, async () => …)',
      );
    }
    this.onDenied = typeof onDenied === 'function' ? onDenied : undefined;
    this.throwsRefusals = onDenied === 'throw';
    this.refundWhen = parts.options.refundWhen as AfterResponse | undefined;
    this.settle = parts.options.settle as AfterResponse | undefined;
    this.#key = key === undefined ? clientIp() : keyOf(key, where);
    this.#cost = cost;
    this.#place = parts.place;
    this.#perMethod = perMethod === true;
    this.#application = application === undefined ? [] : this.#entries(application, parts.applicationPlace, []);
    if (typeof policy === 'function') this.#policy = policy;
    else if (policy === undefined && application !== undefined) this.entries = this.#application;
    else this.entries = this.#entries(policy as PolicyChoice<Request>, this.#place, this.#application);
    // A policy that does not exist is an error when the service starts, and a reload does not drop one that does.
    const by = typeof this.#place === 'string' && this.#place !== '' ? `${where} at ${this.#place}` : where;
    for (const { policy } of this.entries ?? this.#application) usePolicyIn(this.limiter, policy, by, this);
    const [first, second] = this.entries ?? [];
    const isOnly = first !== undefined && second === undefined && hasFixedCost(first) && meta === undefined;
    this.only = isOnly && this.skips.length === 0 ? first : undefined;
  }

  /** The policies of a request. */
  async entriesOf(request: Request): Promise<readonly LimitedEntry<Request>[]> {
    if (this.entries !== undefined) return this.entries;
    const choice = await this.#policy?.(request);
    // A list of nothing is nothing too: a function says which requests have no limit.
    if (choice === undefined || choice === null || (Array.isArray(choice) && choice.length === 0)) {
      return this.#application;
    }
    return this.#entries(choice, this.#place, this.#application);
  }

  /** The entries of a choice, after those that are asked with them. */
  #entries(
    choice: PolicyChoice<Request>,
    place: Place<Request>,
    before: readonly LimitedEntry<Request>[],
  ): readonly LimitedEntry<Request>[] {
    const where = this.adapter.name;
    const choices: readonly (PolicyLike | PolicyEntry<Request>)[] = Array.isArray(choice) ? choice : [choice];
    if (choices.length === 0) throw new ConfigError(`${where}: policy is an empty list: name at least one`);
    const entries = [...before];
    for (const one of choices) {
      const entry = this.#entry(one, place);
      const isKnown = entries.some((known) => known.key === entry.key && this.#isSame(known, entry));
      if (isKnown) {
        const { name } = policyRefIn(this.limiter, entry.policy);
        throw new ConfigError(
          `${where}: the policy ${JSON.stringify(name)} is there twice with one key, which would count twice`,
        );
      }
      entries.push(entry);
    }
    return entries;
  }

  #isSame(a: LimitedEntry<Request>, b: LimitedEntry<Request>): boolean {
    return a.place === b.place && policyRefIn(this.limiter, a.policy).name === policyRefIn(this.limiter, b.policy).name;
  }

  #entry(given: PolicyLike | PolicyEntry<Request>, place: Place<Request>): LimitedEntry<Request> {
    const where = this.adapter.name;
    if (given === undefined || given === null || given === '') {
      throw new ConfigError(
        `${where}: policy is ${given === '' ? '""' : String(given)}: name a policy or write a notation; skip leaves out requests`,
      );
    }
    if (typeof given === 'string' || (typeof given === 'object' && !isPlain(given))) {
      return this.#keyed(given as PolicyLike, this.#key, this.#cost, place);
    }
    checkOptions(given, ['policy', 'key', 'cost'], `${where}: an entry of policy`);
    const { policy, key, cost } = given as PolicyEntry<Request>;
    if (policy === undefined) throw new ConfigError(`${where}: an entry of policy is without its policy`);
    checkCost(cost, where);
    return this.#keyed(policy, key === undefined ? this.#key : keyOf(key, where), cost ?? this.#cost, place);
  }

  #keyed(
    policy: PolicyLike,
    key: KeyReader<Request>,
    cost: CostOption<Request> | undefined,
    place: Place<Request>,
  ): LimitedEntry<Request> {
    const where = isUnnamed(this.limiter, policy) ? place : undefined;
    return { policy, key, cost: cost ?? 1, namesCost: cost !== undefined, place: where };
  }

  /** The key under which an entry counts a request. */
  counted({ place, policy }: LimitedEntry<Request>, request: Request, key: string): string {
    let name = typeof place === 'function' ? place(request) : place;
    if (name instanceof Unrouted) {
      claim(this.limiter, name, policyRefIn(this.limiter, policy).name, this);
      name = name.name;
    }
    return placedKey(name, key, this.#perMethod ? methodOf(this.adapter, request) : undefined);
  }
}

/** The handler of GET answers HEAD. */
function methodSet(methods: readonly string[]): ReadonlySet<string> {
  const names = methods.map((method) => method.toUpperCase());
  return new Set(names.includes('GET') ? [...names, 'HEAD'] : names);
}

/** The method whose budget a request counts for; undefined for a message, which has none. */
function methodOf<Request>(adapter: RequestAdapter<Request>, request: Request): string | undefined {
  const method = adapter.method(request);
  if (method === '') return undefined;
  if (method === 'HEAD') return 'GET';
  // Clients make up as many methods as they like, which some runtimes pass on.
  return METHODS.includes(method) ? method : 'OTHER';
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
