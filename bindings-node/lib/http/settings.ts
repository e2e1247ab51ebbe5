// Options that were found valid, as requests need them.

import type { Decision } from '../decision.js';
import { ConfigError } from '../errors.js';
import { type Limiter, policyRefIn, usePolicyIn } from '../limiter.js';
import type { PolicyLike } from '../policy.js';
import { unwrapped } from '../tracing.js';
import type { HeaderChoice } from './fields.js';
import { keyOf } from './keys.js';
import { isUnnamed, type Place } from './notation-place.js';
import { checkOptions } from './option-names.js';
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
  /** What its key begins with: the place of a notation, and the method. */
  readonly prefix: ((request: Request) => string) | undefined;
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
  readonly meta: MetaOption<Request> | undefined;
  readonly onDenied: ((request: Request, decision: Decision, response: Response) => unknown) | undefined;
  /** Whether refusals go to the framework's error handling. */
  readonly throwsRefusals: boolean;
  readonly refundWhen: AfterResponse | undefined;
  readonly settle: AfterResponse | undefined;
  readonly #application: readonly LimitedEntry<Request>[];
  readonly #policy: PolicyFunction<Request> | undefined;
  readonly #key: KeyReader<Request>;
  readonly #cost: CostOption<Request>;
  readonly #place: Place<Request>;
  readonly #perMethod: boolean;

  constructor(
    parts: LimitParts<Request, Response>,
    readonly adapter: RequestAdapter<Request>,
    clientIp: () => KeyReader<Request>,
  ) {
    const where = adapter.name;
    const { limiter, policy, application, key, cost, headers, methods, onDenied, meta, perMethod } = parts.options;
    if (limiter === undefined)
      throw new ConfigError(`${where}: the option limiter is missing: give a Limiter of tidegate`);
    this.limiter = unwrapped(limiter);
    this.headers = headers ?? 'both';
    this.methods = methods && new Set(methods.map((method) => method.toUpperCase()));
    this.enabled = parts.enabled;
    this.skips = parts.skips;
    this.meta = meta;
    this.onDenied = typeof onDenied === 'function' ? onDenied : undefined;
    this.throwsRefusals = onDenied === 'throw';
    this.refundWhen = parts.options.refundWhen as AfterResponse | undefined;
    this.settle = parts.options.settle as AfterResponse | undefined;
    this.#key = key === undefined ? clientIp() : keyOf(key, where);
    this.#cost = cost ?? 1;
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
    return (
      a.prefix === b.prefix && policyRefIn(this.limiter, a.policy).name === policyRefIn(this.limiter, b.policy).name
    );
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
    cost: CostOption<Request>,
    place: Place<Request>,
  ): LimitedEntry<Request> {
    const at = place !== '' && isUnnamed(this.limiter, policy) ? place : '';
    return { policy, key, cost, prefix: this.#prefix(at) };
  }

  readonly #prefixes = new Map<Place<Request>, (request: Request) => string>();

  /** One function for each place, so that entries of one place can be compared. */
  #prefix(place: Place<Request>): LimitedEntry<Request>['prefix'] {
    if (place === '' && !this.#perMethod) return undefined;
    let prefix = this.#prefixes.get(place);
    if (prefix === undefined) {
      const method = this.#perMethod ? (request: Request): string => methodOf(this.adapter, request) : () => '';
      prefix = (request) => {
        const name = typeof place === 'string' ? place : place(request);
        return name === '' ? method(request) : `${method(request)}${name} `;
      };
      this.#prefixes.set(place, prefix);
    }
    return prefix;
  }
}

/** The method and a blank. HEAD counts as GET: the same handler answers it. */
function methodOf<Request>(adapter: RequestAdapter<Request>, request: Request): string {
  const method = adapter.method(request);
  return method === '' ? '' : `${method === 'HEAD' ? 'GET' : method} `;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
