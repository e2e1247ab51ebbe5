// Turns options into the limits of a place: those of a middleware, or those of a route over its layer.

import { METHODS } from 'node:http';
import process from 'node:process';
import { checkClass } from '../call-options.js';
import type { Cost } from '../cost.js';
import { ConfigError, CostError, describe } from '../errors.js';
import { checkOptions, knownNames, ownOptions } from '../given-options.js';
import { checkCostIn, type Limiter, policyRefIn, sharedCostIn, usePolicyIn } from '../limiter.js';
import { Policy, type PolicyLike, type PolicyRef } from '../policy.js';
import { emitWarning } from '../store-changes.js';
import { unwrapped } from '../tracing.js';
import type { Adapter, Awaitable, RequestAdapter } from './adapter.js';
import type { HeaderChoice } from './fields.js';
import { addressesOf, type ClientIpOptions, keyOf, keysOf } from './keys.js';
import { claim, isUnnamed, type Place, placedKey, Unrouted } from './notation-place.js';
import { warnOfMemory } from './processes.js';
import type {
  CostOption,
  LayerOptions,
  PolicyChoice,
  PolicyEntry,
  PolicyOption,
  RateLimitOptions,
} from './rate-limit-options.js';
import { checkCost, checkValues, LIMIT_NAMES, ROUTE_NAMES } from './rate-limit-options.js';

/** A policy with its key and its cost. */
export interface LimitedEntry<Request> {
  readonly policy: PolicyLike;
  readonly key: (request: Request) => Awaitable<string>;
  readonly cost: CostOption<Request>;
  /** True if the options name its cost. One number of `settle` is for such entries. */
  readonly namesCost: boolean;
  /** True if the entry has its own cost. Others share that of the place, and each takes the units that its policy counts. */
  readonly ownsCost: boolean;
  /** The place of its notation. Undefined for a policy with a name. */
  readonly place: Place<Request> | undefined;
}

/** An entry with a cost that does not depend on the request. */
export type FixedCostEntry<Request> = LimitedEntry<Request> & { readonly cost: Cost };

/** The options of a place, with responses of any framework: those of a route over those of its layer. */
export type AnyOptions<Request> = Partial<LayerOptions<Request, never>>;

const LAYER_NAMES: readonly string[] = [...LIMIT_NAMES, 'default'];

/** The limits of a place. */
export class Settings<Request extends object, Response> {
  /** Each option is a property of the object itself, so that later additions to `Object.prototype` do not change it. */
  readonly options: AnyOptions<Request>;
  readonly limiter: Limiter;
  readonly headers: HeaderChoice;
  readonly enabled: boolean;
  readonly methods: ReadonlySet<string> | undefined;
  /** True if an option is called when a response has ended. */
  readonly observesEnd: boolean;
  /** The policies, unless they depend on the request. */
  readonly entries: readonly LimitedEntry<Request>[] | undefined;
  /** The only policy, if nothing but the key and the cost depends on the request. */
  readonly only: LimitedEntry<Request> | undefined;
  /** Several policies, if nothing but the key that they share depends on the request. */
  readonly together: readonly FixedCostEntry<Request>[] | undefined;
  readonly #application: readonly LimitedEntry<Request>[];
  /** The policies of the place, unless a function chooses them. */
  readonly #fixed: readonly LimitedEntry<Request>[] | undefined;
  /** Limits that are chosen for each request, and asked with those of the place. */
  readonly #chosenBeside: Settings<Request, Response> | undefined;
  readonly #key: LimitedEntry<Request>['key'];
  /** The options by which its key reads addresses. Undefined if it has none. */
  readonly addresses: ClientIpOptions | undefined;

  /**
   * Takes checked options. `place` is the place of `policy`, `layerPlace` that of `application`. The limits of `beside` are asked
   * together with these.
   */
  constructor(
    readonly adapter: Adapter<Request, Response>,
    given: AnyOptions<Request>,
    readonly place: Place<Request>,
    layerPlace = '',
    layerKey: AnyOptions<Request>['key'] = undefined,
    beside?: Settings<Request, Response>,
  ) {
    const where = adapter.name;
    const options = ownOptions(given, LAYER_NAMES);
    this.options = options;
    const { policy, application, key, methods, meta, refundWhen, settle } = options;
    this.enabled = isEnabled(options.enabled, where);
    this.limiter = unwrapped(options.limiter as Limiter);
    this.headers = options.headers ?? 'both';
    this.methods = methods && methodSet(methods);
    this.observesEnd = refundWhen !== undefined || settle !== undefined;
    if (options.holdUntil === 'handler' && adapter.seesHandlers !== true) {
      throw new ConfigError(
        `${where}: holdUntil cannot be 'handler', because the framework does not say here when a handler has ended: hold in the ` +
          'handler, with limiter.hold(policy, key, async () => …)',
      );
    }
    this.addresses = addressesOf(key) ?? addressesOf(layerKey);
    this.#key = key === undefined ? keysOf(adapter).clientIp() : keyOf(key, where, this.addresses);
    const before = beside?.entries ?? [];
    this.#chosenBeside = beside?.entries === undefined ? beside : undefined;
    this.#application = application === undefined ? before : this.#entries(application, layerPlace, before);
    if (policy === undefined && application !== undefined) this.#fixed = this.#application;
    else if (typeof policy !== 'function') this.#fixed = this.#entries(policy as PolicyChoice<Request>);
    this.entries = this.#chosenBeside === undefined ? this.#fixed : undefined;
    // An unknown policy is an error when the service starts, and a reload does not drop a known one.
    const by = typeof place === 'string' && place !== '' ? `${where} at ${place}` : where;
    for (const { policy } of this.#fixed ?? this.#application) usePolicyIn(this.limiter, policy, by, this);
    if (this.enabled) warnOfMemory(this.limiter);
    const entries = this.entries ?? [];
    const [first] = entries;
    const isFree = meta === undefined && options.priority === undefined && options.skip === undefined;
    const isFixed = isFree && entries.every(({ key, cost }) => key === first?.key && typeof cost !== 'function');
    this.only = isFree && entries.length === 1 ? first : undefined;
    this.together = isFixed && entries.length > 1 ? (entries as readonly FixedCostEntry<Request>[]) : undefined;
  }

  /** Returns the policies of a request. */
  async entriesOf(request: Request): Promise<readonly LimitedEntry<Request>[]> {
    if (this.entries !== undefined) return this.entries;
    const own = this.#fixed ?? (await this.#chosen(request));
    return this.#chosenBeside === undefined ? own : [...(await this.#chosenBeside.entriesOf(request)), ...own];
  }

  async #chosen(request: Request): Promise<readonly LimitedEntry<Request>[]> {
    const { policy } = this.options;
    const choice = typeof policy === 'function' ? await policy(request) : undefined;
    // An empty list means no limit too, because a function may leave requests out.
    const isNone = choice === undefined || choice === null || (Array.isArray(choice) && choice.length === 0);
    return isNone ? this.#application : this.#entries(choice);
  }

  /** Returns the entries of a choice, after those that are asked with them. */
  #entries(
    choice: PolicyChoice<Request>,
    place = this.place,
    before = this.#application,
  ): readonly LimitedEntry<Request>[] {
    const where = this.adapter.name;
    const choices: readonly (PolicyLike | PolicyEntry<Request>)[] = Array.isArray(choice) ? choice : [choice];
    const nameOf = ({ policy }: LimitedEntry<Request>): string => policyRefIn(this.limiter, policy).name;
    if (choices.length === 0) throw new ConfigError(`${where}: policy is an empty list: name at least one`);
    const entries = [...before];
    for (const one of choices) {
      const entry = this.#entry(one, place);
      const name = nameOf(entry);
      const isSame = (known: LimitedEntry<Request>): boolean => known.key === entry.key && known.place === entry.place;
      if (entries.some((known) => isSame(known) && nameOf(known) === name)) {
        throw new ConfigError(
          `${where}: the policy ${JSON.stringify(name)} has the same key twice, so a request would count twice: ` +
            `leave one out, or give it another key`,
        );
      }
      entries.push(entry);
    }
    const shared = this.#withShares(entries);
    this.#checkCosts(shared);
    return shared;
  }

  /** If policies share a cost by units, each takes its share. */
  #withShares(entries: readonly LimitedEntry<Request>[]): readonly LimitedEntry<Request>[] {
    const { cost } = this.options;
    if (cost === undefined || typeof cost === 'number' || typeof cost === 'function') return entries;
    try {
      const shares = this.sharesOf(cost, entries);
      const share = (entry: LimitedEntry<Request>, cost: Cost | undefined): LimitedEntry<Request> =>
        entry.ownsCost ? entry : { ...entry, cost: cost ?? 1, namesCost: cost !== undefined };
      return entries.map((entry, index) => share(entry, shares[index]));
    } catch (error) {
      throw error instanceof CostError ? new ConfigError(error.message) : error;
    }
  }

  /** Returns the shares of entries in a cost. An entry with its own cost has none, and neither has one that counts none of the units. */
  sharesOf(cost: Cost, entries: readonly LimitedEntry<Request>[]): readonly (Cost | undefined)[] {
    if (typeof cost === 'number') return entries.map(() => cost);
    const sharing = entries.filter(({ ownsCost }) => !ownsCost);
    try {
      const policyRefs = sharing.map(({ policy }) => policyRefIn(this.limiter, policy));
      const shares = sharedCostIn(this.limiter, policyRefs, cost);
      return entries.map((entry) => shares[sharing.indexOf(entry)] ?? undefined);
    } catch (error) {
      throw error instanceof CostError ? new CostError(`${this.adapter.name}: ${error.message}`) : error;
    }
  }

  /** Throws for a cost that no request can have, such as a number for a policy with named units. */
  #checkCosts(entries: readonly LimitedEntry<Request>[]): void {
    const where = this.adapter.name;
    const policyRefs = entries.map(({ policy }) => policyRefIn(this.limiter, policy));
    const { priority } = this.options;
    if (typeof priority === 'string') checkClass(priority, policyRefs, where);
    for (const [index, entry] of entries.entries()) {
      if (typeof entry.cost === 'function') continue;
      try {
        checkCostIn(this.limiter, policyRefs[index] as PolicyRef, entry.cost);
      } catch (error) {
        if (!(error instanceof CostError)) throw error;
        throw new ConfigError(
          `${where}: ${error.message}: give the option cost an object such as { tokens: 1200 }, or a function of the request that ` +
            'returns one',
        );
      }
    }
  }

  #entry(given: PolicyLike | PolicyEntry<Request>, place: Place<Request>): LimitedEntry<Request> {
    const where = this.adapter.name;
    if (given === undefined || given === null || given === '') {
      throw new ConfigError(
        `${where}: policy is ${given === '' ? '""' : String(given)}: name a policy or write a notation; skip leaves out requests`,
      );
    }
    const isPolicy = typeof given === 'string' || (typeof given === 'object' && !isPlain(given));
    const names = ['policy', 'key', 'cost'];
    if (!isPolicy) checkOptions(given, names, `${where}: an entry of policy`);
    const own = ownOptions((isPolicy ? { policy: given } : given) as PolicyEntry<Request>, names);
    if (own.policy === undefined) throw new ConfigError(`${where}: an entry of policy is without its policy`);
    checkCost(own.cost, where);
    const { policy, cost = this.options.cost } = own;
    const ownsCost = own.cost !== undefined;
    return {
      policy,
      key: own.key === undefined ? this.#key : keyOf(own.key, where, this.addresses),
      cost: cost ?? 1,
      namesCost: cost !== undefined,
      ownsCost,
      place: isUnnamed(this.limiter, policy) ? place : undefined,
    };
  }

  /** Returns the key that an entry counts a request under. */
  counted({ place, policy }: LimitedEntry<Request>, request: Request, key: string): string {
    let name = typeof place === 'function' ? place(request) : place;
    if (name instanceof Unrouted) {
      claim(this.limiter, name, policyRefIn(this.limiter, policy).name, this);
      name = name.name;
    }
    return placedKey(name, key, this.options.perMethod ? methodOf(this.adapter, request) : undefined);
  }
}

/** Returns the methods to limit. The handler of GET answers HEAD. A message that is no HTTP request has no method. */
function methodSet(methods: readonly string[]): ReadonlySet<string> {
  const names = methods.map((method) => method.toUpperCase());
  return new Set(['', ...names, ...(names.includes('GET') ? ['HEAD'] : [])]);
}

/** Returns the method that a request counts for. Undefined for a message, which has none. */
function methodOf<Request>(adapter: RequestAdapter<Request>, request: Request): string | undefined {
  const method = adapter.method(request);
  if (method === '') return undefined;
  if (method === 'HEAD') return 'GET';
  // Clients make up any number of methods, and some runtimes pass them on.
  return METHODS.includes(method) ? method : 'OTHER';
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Returns the limits of a middleware. */
export function middlewareLimits<Request extends object, Response>(
  adapter: Adapter<Request, Response>,
  given: RateLimitOptions<Request, never>,
  place: Place<Request>,
): Settings<Request, Response> {
  const where = adapter.name;
  const options = checkNamed(given, LIMIT_NAMES, where);
  if (options.policy === undefined) {
    throw new ConfigError(
      `${where}: the option policy is missing: name a policy or write a notation, such as '100/minute'`,
    );
  }
  return new Settings(adapter, options, place);
}

function checkNamed<Options extends AnyOptions<never>>(
  given: Options,
  names: readonly string[],
  where: string,
): Options {
  const options = ownOptions(checkOptions(given, names, where), names);
  checkValues(options as AnyOptions<never>, where);
  if (options.limiter === undefined) {
    throw new ConfigError(`${where}: the option limiter is missing: give a Limiter of tidegate`);
  }
  return options;
}

/** Checks the options of a layer over routes. */
export function checkLayer<Options extends AnyOptions<never>>(
  given: Options,
  where: string,
  more: readonly string[] = [],
): Options {
  const options = checkNamed(given, [...LAYER_NAMES, ...more], where);
  if (options.policy !== undefined && options.default !== undefined) {
    throw new ConfigError(
      `${where}: policy is one limit for all routes together, default one for each of them: give one of the two`,
    );
  }
  return options;
}

/** Warns of a layer that limits nothing, if no route names a limit either. It was registered for some reason. */
export function warnIfIdle<Request>(
  { policy, default: each, application, enabled }: AnyOptions<Request>,
  where: string,
  [layer, routes, example]: readonly [layer: string, routes: string, example: string],
): void {
  if ((policy ?? each ?? application) !== undefined || !isEnabled(enabled, where)) return;
  emitWarning(
    `the ${layer} of ${where} limits nothing: it has no policy, no default and no application, and no ${routes} names one. Give it ` +
      `a policy, or a limit to a route, as in ${example}`,
  );
}

/** Returns the limits of a route as options. False if the route is not limited, undefined if it names no limits. */
export function routeOptions<Request>(given: unknown, where: string): AnyOptions<Request> | false | undefined {
  if (given === undefined || given === false) return given;
  const isChoice = given instanceof Policy || Array.isArray(given) || ['string', 'function'].includes(typeof given);
  const all: unknown = isChoice ? { policy: given } : given;
  if (typeof all !== 'object' || all === null) {
    throw new ConfigError(
      `${where}: the limits of a route must be a policy, options, or false, not ${describe(given)}`,
    );
  }
  const ofLayer = Object.keys(all).find((name) => name === 'application' || name === 'default');
  if (ofLayer !== undefined) {
    throw new ConfigError(
      `${where}: ${ofLayer} is an option of the layer, not of a route: ${knownNames('policy', ROUTE_NAMES)}`,
    );
  }
  checkOptions(all, ROUTE_NAMES, `${where}: the limits of a route`);
  const options: AnyOptions<Request> = ownOptions(all, ROUTE_NAMES);
  checkValues(options as AnyOptions<never>, where);
  return options;
}

/**
 * Returns the limits of a route under a layer. Undefined if it has none. `layerPlace` is empty for a layer of the whole
 * application, and `route` undefined for a request that no route answers. The limits of `beside` are asked together with these.
 */
export function routeLimits<Request extends object, Response>(
  adapter: Adapter<Request, Response>,
  layer: AnyOptions<Request>,
  own: AnyOptions<Request> | false | undefined,
  layerPlace: string,
  route: Place<Request> | undefined,
  beside?: Settings<Request, Response>,
): Settings<Request, Response> | undefined {
  if (own === false) return undefined;
  const { default: each, ...common } = layer;
  let policy: PolicyOption<Request> | undefined = own?.policy;
  let place: Place<Request> = route ?? layerPlace;
  if (policy === undefined && common.policy !== undefined) [policy, place] = [common.policy, layerPlace];
  // A default is a budget of each route: a request that no route answers has none.
  if (policy === undefined && route !== undefined) policy = each;
  if (policy === undefined && own !== undefined) {
    throw new ConfigError(
      `${adapter.name}: the limits of ${typeof route === 'string' ? route : 'a route'} name no policy, and neither does their layer`,
    );
  }
  if (policy === undefined && common.application === undefined) return undefined;
  const given = Object.fromEntries(Object.entries(own ?? {}).filter(([, value]) => value !== undefined));
  const skip = eitherOf(common.skip, own?.skip);
  const enabled = own?.enabled === false ? false : (common.enabled ?? own?.enabled);
  const options = { ...common, ...given, policy, skip, enabled };
  return new Settings<Request, Response>(adapter, options, place, layerPlace, common.key, beside);
}

type Skip<Request> = AnyOptions<Request>['skip'];

function eitherOf<Request>(first: Skip<Request>, second: Skip<Request>): Skip<Request> {
  if (first === undefined || second === undefined) return first ?? second;
  return async (request) => (await first(request)) || (await second(request));
}

const ON = ['1', 'true', 'yes', 'on'];
const OFF = ['0', 'false', 'no', 'off'];

/** True if limits apply at all: by the option `enabled`, else by the environment variable `TIDEGATE_ENABLED`, else always. */
function isEnabled(option: boolean | undefined, where: string): boolean {
  if (option !== undefined) return option;
  const value = process.env['TIDEGATE_ENABLED']?.trim().toLowerCase() ?? '';
  if (value === '' || ON.includes(value)) return true;
  if (OFF.includes(value)) return false;
  throw new ConfigError(
    `${where}: the environment variable TIDEGATE_ENABLED must be one of ${[...ON, ...OFF].join(', ')}, not ${describe(value)}`,
  );
}
