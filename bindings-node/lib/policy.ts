import { checkText, describe, PolicyError, type SourceLocation, shortened } from './errors.js';
import { checkOptions, checkType, declaredNames, declaredOptions, isRecord, ownOptions } from './given-options.js';
import { type binding, native, unwrap } from './native.js';

/** The algorithm of a limit. */
export type Algorithm =
  | 'fixed-window'
  | 'calendar-window'
  | 'sliding-window'
  | 'sliding-log'
  | 'sliding-counter'
  | 'token-bucket'
  | 'gcra'
  | 'leaky-bucket'
  | 'concurrency';

/** The answer of a check if the store fails. */
export type OnStoreError = 'raise' | 'open' | 'closed' | 'local';

/** Milliseconds, or a text such as `'10m'` or `'1 day'`. */
export type Duration = number | string;

/** A warning about a limit that probably does not work as its author meant. */
export interface LintWarning {
  /** The policy's name. */
  readonly policy: string;
  /** Its position in the file. Missing for a policy that was given in code. */
  readonly place?: SourceLocation;
  /** The problem, and a way to solve it. */
  readonly message: string;
}

/** The options of a limit. */
export interface LimitOptions {
  /** The time for `count` units. For `concurrency` it is the ttl of its holds, by default 60 s. */
  period?: Duration | undefined;
  /** For buckets: the units it admits at once. */
  burst?: number | undefined;
  /** For a `token-bucket`: the tokens it starts with, instead of full. */
  initial?: number | undefined;
  /** For a `sliding-window`: the number of its granules. Default 20. */
  precision?: number | undefined;
  /** The name of its unit, such as `tokens`. */
  unit?: string | undefined;
  /** For a `calendar-window` of one day, week, month or year: the start of each window, as in `'day 15 at 06:00'` or `'monday'`. */
  from?: string | undefined;
  /** For the same windows: the time zone of that start, as in `'Europe/Berlin'`. Default: UTC. */
  in?: string | undefined;
}

/** The options of a policy. */
export interface PolicyOptions {
  /** Its name. Default: its notation, so that the same limits written in two places are the same policy. */
  name?: string | undefined;
  // options: policy
  /** The answer to a check when the store fails. It overrides the choice of the limiter. */
  onStoreError?: OnStoreError | undefined;
  /** Evaluate and count the policy, but never deny a call. Default: false. */
  shadow?: boolean | undefined;
  /**
   * The time for which a key stays denied after a denial. With several times, each new block takes the next, and the
   * last repeats.
   */
  blockFor?: Duration | readonly Duration[] | undefined;
  /**
   * The time after the end of a block until the next block takes the first time of `blockFor` again. Without it, a day.
   */
  forgive?: Duration | undefined;
  /** Charge denied checks too, so that a caller that keeps trying stays denied. Default: false. */
  countDenied?: boolean | undefined;
  /** The number of newest attempts to remember with their metadata. With 0, nothing is remembered. Default: 0. */
  journal?: number | undefined;
  /** The units that a process takes in advance and spends without the network: a number, or a part such as `5%`. */
  lease?: number | string | undefined;
  /** The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`. */
  priorities?: Readonly<Record<string, string>> | undefined;
  /** The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold. */
  maxHold?: Duration | undefined;
  /** Other limits for single keys, by the key: a notation, or `none` for a key without limits. */
  overrides?: Readonly<Record<string, OverrideLike>> | undefined;
  // options end
}

/** Limits for a single key: a notation or `'none'`, a Limit, a list of both, or a Policy (only its limits count). */
export type OverrideLike = string | Limit | Policy | readonly (string | Limit)[];

/** A text that may be a notation and is no name. Calls of a limiter with known names take it besides those names. */
export type Notation =
  | `${string}/${string}`
  | `${string} per ${string}`
  | `${string} PER ${string}`
  | `concurrency ${string}`
  | `CONCURRENCY ${string}`;

/** The policy of a call: a name, a notation written in place, or a Policy. */
export type PolicyLike<Name extends string = string> = Name | Notation | Policy;

/** A policy as a limiter has resolved it. */
export interface PolicyRef {
  /** Its number in calls. */
  readonly id: number;
  readonly name: string;
  /** True if it has units that are held and given back. */
  readonly holds: boolean;
  /** The unit of each limit, an empty text for a limit without one. Undefined if no limit names a unit. */
  readonly units?: readonly string[];
  /** The same for the limits of one of its keys. */
  readonly unitsFor: (key: string) => readonly string[] | undefined;
  /** The classes of its option `priorities`. Undefined if there are none. */
  readonly classes?: readonly string[];
  /** Its announcement over HTTP, if it has one. */
  readonly announcement?: binding.Announcement;
  /** The same with the limits of one of its keys. */
  readonly announcementFor: (key: string) => binding.Announcement | undefined;
  /** The policy as the caller gave it. */
  readonly given: PolicyLike;
  /** The store and the prefix of the limiter, as one text. */
  readonly limiter: string;
  /** The number of its denials that were repeated in JavaScript and not counted yet. */
  repeated: number;
}

export let nativeLimitOf: (limit: Limit) => binding.Limit;
export let nativePolicyOf: (policy: Policy) => binding.Policy;

/** Returns the Policy of a native one. A constructor takes it, which its signature hides from users. */
export function policyFrom(policy: binding.Policy): Policy {
  return new Policy(policy as never);
}

type Defined<T> = { [Name in keyof T]: Exclude<T[Name], undefined> };

/** Removes options that are undefined, because the native side takes them for values. */
function withoutUndefined<T extends object>(options: T): Defined<T> {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  // The object has no prototype, because the addon would read properties that a program has added to every object.
  return Object.assign(Object.create(null), Object.fromEntries(given)) as Defined<T>;
}

const LIMIT_OPTIONS = {
  period: ['number', 'string'],
  burst: ['number'],
  initial: ['number'],
  precision: ['number'],
  unit: ['string'],
  from: ['string'],
  in: ['string'],
} as const;

/**
 * One limit: `count` units per `period`, counted by an algorithm.
 *
 * ```ts
 * new Limit('gcra', 100, { period: '1s', burst: 200 })
 * ```
 */
export class Limit {
  readonly #limit: binding.Limit;
  readonly #properties: binding.LimitProperties;

  constructor(algorithm: Algorithm, count: number, options: LimitOptions = {}) {
    const given: unknown = algorithm;
    this.#limit = given instanceof native.Limit ? given : nativeLimit(algorithm, count, options);
    this.#properties = this.#limit.properties();
  }

  get algorithm(): Algorithm {
    return this.#properties.algorithm as Algorithm;
  }

  /** Units per period. */
  get count(): number {
    return this.#properties.count;
  }

  /** The period in milliseconds. For `concurrency` it is the ttl of the holds. */
  get periodMs(): number {
    return this.#properties.periodMs;
  }

  /** The burst, if one was given. */
  get burst(): number | undefined {
    return this.#properties.burst;
  }

  /** The most units it ever admits at once. */
  get capacity(): number {
    return this.#properties.capacity;
  }

  /** The tokens a `token-bucket` starts with, if that was given. */
  get initial(): number | undefined {
    return this.#properties.initial;
  }

  /** The granules of a `sliding-window`. */
  get precision(): number | undefined {
    return this.#properties.precision;
  }

  /** The unit that it counts, if it names one. */
  get unit(): string | undefined {
    return this.#properties.unit;
  }

  /** The start of each window within its period, if it is not the usual one. */
  get from(): string | undefined {
    return this.#properties.from;
  }

  /** The time zone of the start of windows, if it is not UTC. */
  get in(): string | undefined {
    return this.#properties.in;
  }

  /** Returns the notation. */
  toString(): string {
    return this.#properties.notation;
  }

  static {
    nativeLimitOf = (limit) => limit.#limit;
  }
}

/**
 * Limits that must all admit, plus options. It is immutable.
 *
 * ```ts
 * new Policy('20/minute; 5/3s', { shadow: true })
 * new Policy([new Limit('gcra', 100, { period: '1s', burst: 200 }), '5/3s'], { blockFor: '10m' })
 * ```
 */
export class Policy {
  readonly #policy: binding.Policy;
  readonly #options: OptionValues;

  constructor(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions = {}) {
    const given: unknown = limits;
    this.#policy = given instanceof native.Policy ? given : nativePolicy(limits, options);
    this.#options = optionsOf(this.#policy);
  }

  /** The name, or the notation when it has no name. */
  get name(): string {
    return this.#policy.name();
  }

  /** The limits, in the order they were written. */
  get limits(): readonly Limit[] {
    return this.#policy.limits().map((limit) => new Limit(limit as never, 1));
  }

  // options: properties of a policy
  /** The answer to a check when the store fails. It overrides the choice of the limiter. */
  get onStoreError(): OnStoreError | undefined {
    return this.#options['onStoreError'] as OnStoreError | undefined;
  }

  /** Evaluate and count the policy, but never deny a call. */
  get shadow(): boolean {
    return this.#options['shadow'] as boolean;
  }

  /**
   * The time for which a key stays denied after a denial. With several times, each new block takes the next, and the
   * last repeats.
   */
  get blockForMs(): number | readonly number[] | undefined {
    return this.#options['blockForMs'] as number | readonly number[] | undefined;
  }

  /**
   * The time after the end of a block until the next block takes the first time of `blockFor` again. Without it, a day.
   */
  get forgiveMs(): number | undefined {
    return this.#options['forgiveMs'] as number | undefined;
  }

  /** Charge denied checks too, so that a caller that keeps trying stays denied. */
  get countDenied(): boolean {
    return this.#options['countDenied'] as boolean;
  }

  /** The number of newest attempts to remember with their metadata. With 0, nothing is remembered. */
  get journal(): number {
    return this.#options['journal'] as number;
  }

  /** The units that a process takes in advance and spends without the network: a number, or a part such as `5%`. */
  get lease(): number | string | undefined {
    return this.#options['lease'] as number | string | undefined;
  }

  /** The classes of calls. Each must leave a part of every limit free for others, such as `batch: 30%`. */
  get priorities(): Record<string, string> | undefined {
    return this.#options['priorities'] as Record<string, string> | undefined;
  }

  /** The longest time that a hold of a `concurrency` limit is renewed. After it, the ttl ends the hold. */
  get maxHoldMs(): number | undefined {
    return this.#options['maxHoldMs'] as number | undefined;
  }

  /** Other limits for single keys, by the key: a notation, or `none` for a key without limits. */
  get overrides(): Readonly<Record<string, string>> | undefined {
    return this.#options['overrides'] as Readonly<Record<string, string>> | undefined;
  }

  // options end

  /**
   * Returns this policy for outgoing calls. The other side counts calls when they arrive, and begins its windows when it likes.
   * So `marginMs` leaves a margin for differences on the way. The calls also keep the limits in responses: see `observe`.
   */
  paced(marginMs = 50): Policy {
    checkType('marginMs', marginMs, ['number']);
    return policyFrom(unwrap(this.#policy.paced(marginMs)));
  }

  /** Returns a policy that has no limits except those that responses announce. */
  static learned(): Policy {
    return policyFrom(unwrap(native.learnedPolicy()));
  }

  /** Returns warnings about limits that probably do not work as their author meant. */
  lint(): readonly LintWarning[] {
    return unwrap(native.lintPolicies([undefined], [this.#policy]));
  }

  /** Returns the notation of its limits. */
  toString(): string {
    return this.#policy.notation();
  }

  static {
    nativePolicyOf = (policy) => policy.#policy;
  }
}

function nativeLimit(algorithm: Algorithm, count: number, given: LimitOptions): binding.Limit {
  const names = Object.keys(LIMIT_OPTIONS);
  const options = ownOptions(checkOptions(given, names, 'a limit', "period: '1 minute'", PolicyError), names);
  for (const [name, value] of Object.entries(withoutUndefined(options))) {
    checkType(name, value, LIMIT_OPTIONS[name as keyof typeof LIMIT_OPTIONS], PolicyError);
  }
  checkType('algorithm', algorithm, ['string'], PolicyError);
  checkType('count', count, ['number'], PolicyError);
  return unwrap(native.limit(withoutUndefined({ algorithm, count, ...options })));
}

/** Returns the classes of a policy as the text that crosses. */
function classesText(priorities: unknown): string {
  if (!isRecord(priorities)) {
    throw new PolicyError(
      `priorities must be an object of classes with their parts, as in { batch: '30%' }, not ${describe(priorities)}`,
    );
  }
  const classes = Object.entries(priorities).map(([name, part]) => {
    // A colon or a comma would end a class in the text.
    if (typeof part === 'string' && !/[:,]/.test(name + part)) return `${name}: ${part}`;
    throw new PolicyError(
      `priorities: ${shortened(name)} must be a part, as in { batch: '30%' }, not ${describe(part)}`,
    );
  });
  return classes.join(', ');
}

type OptionValues = Record<string, boolean | number | string | number[] | Record<string, string>>;

/** Returns the options of a policy, with its classes as they were given. */
function optionsOf(policy: binding.Policy): OptionValues {
  const options = policy.options();
  const { priorities } = options;
  if (typeof priorities !== 'string') return options;
  return { ...options, priorities: Object.fromEntries(priorities.split(', ').map((one) => one.split(': '))) };
}

/** Returns the limits of a key as text. */
export function overrideText(limits: OverrideLike): string {
  const all: readonly unknown[] = limits instanceof Policy ? limits.limits : Array.isArray(limits) ? limits : [limits];
  if (all.length === 0) throw new PolicyError("an override has no limits: give 'none' for a key without limits");
  const texts = all.map((limit) => {
    if (typeof limit === 'string') return checkText(limit, 'a notation', PolicyError);
    if (!(limit instanceof Limit)) {
      throw new PolicyError(`a limit of an override must be a notation or a Limit, not ${describe(limit)}`);
    }
    // No notation can express these.
    const isPrecise = limit.algorithm === 'sliding-window' && limit.precision !== DEFAULT_PRECISION;
    if (limit.initial !== undefined || isPrecise) {
      throw new PolicyError(
        `the override ${limit} has numbers that a notation cannot have, such as precision or initial: leave them out`,
      );
    }
    return limit.toString();
  });
  return texts.join('; ');
}

/** The granules of a `sliding-window` that names no other number. */
const DEFAULT_PRECISION = 20;

function nativePolicy(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions): binding.Policy {
  const names = ['name', ...declaredNames('policy')];
  const own = ownOptions(checkOptions(options, names, 'a policy', 'shadow: true', PolicyError), names);
  const { name, priorities, ...given } = own;
  if (name !== undefined) checkType('name', name, ['string'], PolicyError);
  for (const { name, types } of declaredOptions('policy')) {
    const value: unknown = given[name as keyof typeof given];
    if (value !== undefined) checkType(name, value, types, PolicyError);
  }
  if (given.overrides !== undefined) {
    if (!isRecord(given.overrides)) {
      throw new PolicyError(`overrides must be an object of keys and their limits, not ${describe(given.overrides)}`);
    }
    const texts = Object.entries(given.overrides).map(([key, own]) => [key, overrideText(own)] as const);
    given.overrides = Object.fromEntries(texts);
  }
  const all: readonly unknown[] = Array.isArray(limits) ? limits : [limits];
  const natives = all.map((limit) => {
    if (typeof limit === 'string') return checkText(limit, 'a notation', PolicyError);
    if (limit instanceof Limit) return nativeLimitOf(limit);
    throw new PolicyError(`a limit of a policy must be a notation or a Limit, not ${describe(limit)}`);
  });
  const classes = priorities === undefined ? undefined : classesText(priorities);
  return unwrap(native.policy(natives, name, withoutUndefined({ ...given, priorities: classes })));
}

let learned: Policy | undefined;

/** The policy of calls that only the responses of the service limit. */
export function learnedPolicy(): Policy {
  learned ??= Policy.learned();
  return learned;
}
