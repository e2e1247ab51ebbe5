import { checkText, describe, PolicyError, type SourceLocation } from './errors.js';
import { checkOptions } from './given-options.js';

import { native, unwrap } from './native.js';

/** How a limit counts. */
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

/** What a check answers when the store fails. */
export type OnStoreError = 'raise' | 'open' | 'closed' | 'local';

/** Milliseconds, or a text such as `'10m'` or `'1 day'`. */
export type Duration = number | string;

/** A limit in a policy or a policy file that probably does not do what its author meant. */
export interface LintWarning {
  /** The policy's name. */
  readonly policy: string;
  /** Its position in the file; missing for a policy that was given in code. */
  readonly place?: SourceLocation;
  /** What is suspicious, and what to do about it. */
  readonly message: string;
}

/** The numbers of a limit besides algorithm and count. */
export interface LimitOptions {
  /** The time that `count` units are for; for `concurrency` the ttl of its holds, by default 60 s. */
  period?: Duration | undefined;
  /** Buckets: the units it admits at once. */
  burst?: number | undefined;
  /** `token-bucket`: the tokens it starts with, instead of full. */
  initial?: number | undefined;
  /** `sliding-window`: its granules. Default 20. */
  precision?: number | undefined;
}

/** The options of a policy. */
export interface PolicyOptions {
  /** Its name. Default: its notation, so that the same limits written in two places are the same policy. */
  name?: string | undefined;
  /** What a check answers when the store fails. Overrides the limiter's option. */
  onStoreError?: OnStoreError | undefined;
  /** Evaluate and count, but never deny. */
  shadow?: boolean | undefined;
  /** Once denied, the key stays denied this long. */
  blockFor?: Duration | undefined;
  /** Charge denied checks too: a caller that keeps hammering stays out. */
  countDenied?: boolean | undefined;
  /** How many of the newest attempts to remember, with their metadata. */
  journal?: number | undefined;
  /** Units that a process takes in advance and spends without the network: a number, or a part such as `'5%'`. */
  lease?: number | string | undefined;
}

/** What a call takes as its policy: a name, a notation written in place, or a Policy. */
export type PolicyLike = string | Policy;

/** A policy as a limiter has resolved it. */
export interface PolicyRef {
  /** Its number in calls. */
  readonly id: number;
  readonly name: string;
  /** Whether it has units that are held and given back. */
  readonly holds: boolean;
  /** How HTTP announces it, if it does. */
  readonly announcement?: native.Announcement;
  /** What the caller gave. */
  readonly given: PolicyLike;
  /** The store and the prefix of the limiter, as one number. */
  readonly limiter: string;
  /** How many of its denials were repeated in JavaScript, and not counted yet. */
  repeated: number;
}

export let nativeLimitOf: (limit: Limit) => native.Limit;
export let nativePolicyOf: (policy: Policy) => native.Policy;

// A constructor is also given an object of the native side, which its signature for users does not say.
function limitFrom(limit: native.Limit): Limit {
  return new Limit(limit as never, 1);
}

/** The Policy of a native one. */
export function policyFrom(policy: native.Policy): Policy {
  return new Policy(policy as never);
}

type Defined<T> = { [Name in keyof T]: Exclude<T[Name], undefined> };

/** Without options that are undefined: the native side takes them for values. */
function withoutUndefined<T extends object>(options: T): Defined<T> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Defined<T>;
}

/** Throws for an option that has the wrong type. */
function checkTypes(options: object, types: Record<string, readonly string[]>): void {
  for (const [name, value] of Object.entries(options)) {
    const fits = types[name] as readonly string[];
    if (!fits.includes(typeof value)) {
      throw new PolicyError(`${name} cannot be ${describe(value)}: it must be a ${fits.join(' or a ')}`);
    }
    if (typeof value === 'string') checkText(value, name, PolicyError);
  }
}

const LIMIT_OPTIONS = {
  period: ['number', 'string'],
  burst: ['number'],
  initial: ['number'],
  precision: ['number'],
} as const;

const POLICY_OPTIONS: Record<string, readonly string[]> = Object.fromEntries([
  ['name', ['string']],
  ...native.policyOptions().map(({ name, types }) => [name, types]),
]);

/** The options of a valid policy. */
type OptionValues = Defined<Required<Pick<PolicyOptions, 'shadow' | 'countDenied' | 'journal'>>> &
  Pick<PolicyOptions, 'onStoreError' | 'lease'> & { readonly blockForMs?: number };

/**
 * One limit: `count` units per `period`, counted by an algorithm.
 *
 * ```ts
 * new Limit('gcra', 100, { period: '1s', burst: 200 })
 * ```
 */
export class Limit {
  readonly #limit: native.Limit;
  readonly #properties: native.LimitProperties;

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

  /** The period in milliseconds; the ttl of the holds for `concurrency`. */
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

  /** The notation. */
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
  readonly #policy: native.Policy;
  readonly #options: OptionValues;

  constructor(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions = {}) {
    const given: unknown = limits;
    this.#policy = given instanceof native.Policy ? given : nativePolicy(limits, options);
    this.#options = this.#policy.options() as unknown as OptionValues;
  }

  /** The name, or the notation when it has no name. */
  get name(): string {
    return this.#policy.name();
  }

  /** The limits, in the order they were written. */
  get limits(): readonly Limit[] {
    return this.#policy.limits().map(limitFrom);
  }

  /** What a check answers when the store fails; undefined when the limiter's option decides. */
  get onStoreError(): OnStoreError | undefined {
    return this.#options.onStoreError;
  }

  /** Whether it only counts and never denies. */
  get shadow(): boolean {
    return this.#options.shadow;
  }

  /** How long a key stays denied once it was, in milliseconds; undefined when only its limits decide. */
  get blockForMs(): number | undefined {
    return this.#options.blockForMs;
  }

  /** Whether denied checks are charged too. */
  get countDenied(): boolean {
    return this.#options.countDenied;
  }

  /** How many attempts are remembered. */
  get journal(): number {
    return this.#options.journal;
  }

  /** What a process takes in advance: a number of units, a part such as `'5%'`, or undefined. */
  get lease(): number | string | undefined {
    return this.#options.lease;
  }

  /** Warns of what probably does not do what its author meant. */
  lint(): readonly LintWarning[] {
    return unwrap(native.lintPolicies([undefined], [this.#policy]));
  }

  /** The notation of its limits. */
  toString(): string {
    return this.#policy.notation();
  }

  static {
    nativePolicyOf = (policy) => policy.#policy;
  }
}

function nativeLimit(algorithm: Algorithm, count: number, options: LimitOptions): native.Limit {
  checkOptions('a limit', options, Object.keys(LIMIT_OPTIONS), "period: '1 minute'", PolicyError);
  const rest = withoutUndefined(options);
  checkTypes(rest, LIMIT_OPTIONS);
  checkTypes({ algorithm, count }, { algorithm: ['string'], count: ['number'] });
  return unwrap(native.limit({ algorithm, count, ...rest }));
}

function nativePolicy(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions): native.Policy {
  checkOptions('a policy', options, Object.keys(POLICY_OPTIONS), 'shadow: true', PolicyError);
  const rest = withoutUndefined(options);
  checkTypes(rest, POLICY_OPTIONS);
  const all: readonly unknown[] = Array.isArray(limits) ? limits : [limits];
  const natives = all.map((limit) => {
    if (typeof limit === 'string') {
      checkText(limit, 'a notation', PolicyError);
      return limit;
    }
    if (limit instanceof Limit) return nativeLimitOf(limit);
    throw new PolicyError(`a policy cannot have the limit ${describe(limit)}: give a notation or a Limit`);
  });
  const { name, ...given } = rest;
  return unwrap(native.policy(natives, name, given));
}
