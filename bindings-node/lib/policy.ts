import { PolicyError } from './errors.js';
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

/** The numbers of a limit besides algorithm and count. */
export interface LimitOptions {
  /** How long `count` units are for; for `concurrency` the ttl of its holds, 60 s when not said. */
  period?: Duration;
  /** Buckets: room for so many units at once. */
  burst?: number;
  /** `token-bucket`: the tokens it starts with, instead of full. */
  initial?: number;
  /** `sliding-window`: its granules, 20 when not said. */
  precision?: number;
}

/** The options of a policy. */
export interface PolicyOptions {
  /** What it is called; its notation when not said, so that the same limits written in two places are the same policy. */
  name?: string;
  /** Overrides the limiter's choice of what to answer when the store fails. */
  onStoreError?: OnStoreError;
  /** Evaluate and count, but never deny. */
  shadow?: boolean;
  /** Once denied, the key stays denied this long. */
  blockFor?: Duration;
  /** Charge denied checks too: a caller that keeps hammering stays out. */
  countDenied?: boolean;
  /** Remember the newest so many attempts with their metadata. */
  journal?: number;
  /** Take units in advance and spend them without the network: a number of them, or a share such as `'5%'`. */
  lease?: number | string;
}

/** What a call takes as its policy: a name, a notation written in place, or a Policy. */
export type PolicyLike = string | Policy;

export let limitOf: (limit: Limit) => native.Limit;
export let policyOf: (policy: Policy) => native.Policy;

/** What the native side has made: its own way in, so that the constructors take what users say. */
let made: native.Limit | native.Policy | undefined;

function fromLimit(limit: native.Limit): Limit {
  made = limit;
  return new Limit('gcra', 1);
}

/** A policy of the native side. */
export function fromPolicy(policy: native.Policy): Policy {
  made = policy;
  return new Policy('');
}

function taken<T>(kind: abstract new (...given: never[]) => T): T | undefined {
  const one = made;
  made = undefined;
  return one instanceof kind ? one : undefined;
}

/** Without what was not said, which is not the same as what was said to be undefined. */
function said<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

/** Options that nobody knows are mistakes: better loud than without effect. */
function known(options: object, names: readonly string[], what: string): void {
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new PolicyError(`${what} has no option ${name}: it has ${names.join(', ')}`);
  }
}

function typed(options: object, types: Record<string, readonly string[]>, what: string): void {
  known(options, Object.keys(types), what);
  for (const [name, value] of Object.entries(options)) {
    const fits = types[name] ?? [];
    if (!fits.includes(typeof value)) {
      throw new PolicyError(`${name} cannot be ${String(value)}: it must be a ${fits.join(' or a ')}`);
    }
  }
}

const LIMIT_OPTIONS = {
  period: ['number', 'string'],
  burst: ['number'],
  initial: ['number'],
  precision: ['number'],
} as const;

const POLICY_OPTIONS = {
  name: ['string'],
  onStoreError: ['string'],
  shadow: ['boolean'],
  blockFor: ['number', 'string'],
  countDenied: ['boolean'],
  journal: ['number'],
  lease: ['number', 'string'],
} as const;

/**
 * One limit: `count` units per `period`, counted by an algorithm.
 *
 * ```ts
 * new Limit('gcra', 100, { period: '1s', burst: 200 })
 * ```
 */
export class Limit {
  readonly #limit: native.Limit;
  readonly #numbers: native.LimitProperties;

  constructor(algorithm: Algorithm, count: number, options: LimitOptions = {}) {
    this.#limit = taken(native.Limit) ?? described(algorithm, count, options);
    this.#numbers = this.#limit.numbers();
  }

  get algorithm(): Algorithm {
    return this.#numbers.algorithm as Algorithm;
  }

  /** Units per period. */
  get count(): number {
    return this.#numbers.count;
  }

  /** The period in milliseconds; the ttl of the holds for `concurrency`. */
  get periodMs(): number {
    return this.#numbers.periodMs;
  }

  /** The burst that was asked for. */
  get burst(): number | undefined {
    return this.#numbers.burst;
  }

  /** The most units it ever admits at once. */
  get capacity(): number {
    return this.#numbers.capacity;
  }

  /** The tokens a `token-bucket` starts with, when that was said. */
  get initial(): number | undefined {
    return this.#numbers.initial;
  }

  /** The granules of a `sliding-window`. */
  get precision(): number | undefined {
    return this.#numbers.precision;
  }

  /** The notation. */
  toString(): string {
    return this.#numbers.notation;
  }

  static {
    limitOf = (limit) => limit.#limit;
  }
}

/**
 * Limits that must all admit, plus options. It never changes.
 *
 * ```ts
 * new Policy('20/minute; 5/3s', { shadow: true })
 * new Policy([new Limit('gcra', 100, { period: '1s', burst: 200 }), '5/3s'], { blockFor: '10m' })
 * ```
 */
export class Policy {
  readonly #policy: native.Policy;
  readonly #options: native.PolicyOptionValues;

  constructor(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions = {}) {
    this.#policy = taken(native.Policy) ?? composed(limits, options);
    this.#options = this.#policy.options();
  }

  /** The name, or the notation when none was given. */
  get name(): string {
    return this.#policy.name();
  }

  /** The limits, in the order they were written. */
  get limits(): readonly Limit[] {
    return this.#policy.limits().map(fromLimit);
  }

  /** What a check answers when the store fails; the limiter's choice when not said. */
  get onStoreError(): OnStoreError | undefined {
    return this.#options.onStoreError as OnStoreError | undefined;
  }

  /** Whether it only counts and never denies. */
  get shadow(): boolean {
    return this.#options.shadow;
  }

  /** How long a key stays denied once it was, in milliseconds; not said: no longer than its limits say. */
  get blockForMs(): number | undefined {
    return this.#options.blockForMs;
  }

  /** Whether denied checks are charged, too. */
  get countDenied(): boolean {
    return this.#options.countDenied;
  }

  /** How many attempts are remembered. */
  get journal(): number {
    return this.#options.journal;
  }

  /** The notation of its limits. */
  toString(): string {
    return this.#policy.notation();
  }

  static {
    policyOf = (policy) => policy.#policy;
  }
}

function described(algorithm: Algorithm, count: number, options: LimitOptions): native.Limit {
  const rest = said(options);
  typed(rest, LIMIT_OPTIONS, 'a limit');
  typed({ algorithm, count }, { algorithm: ['string'], count: ['number'] }, 'a limit');
  return unwrap(native.limit({ algorithm, count, ...rest }));
}

function composed(limits: string | Limit | readonly (string | Limit)[], options: PolicyOptions): native.Policy {
  const rest = said(options);
  typed(rest, POLICY_OPTIONS, 'a policy');
  const all: readonly unknown[] = Array.isArray(limits) ? limits : [limits];
  const natives = all.map((limit) => {
    if (typeof limit === 'string') return limit;
    if (limit instanceof Limit) return limitOf(limit);
    throw new PolicyError(`a policy cannot have the limit ${String(limit)}: give a notation or a Limit`);
  });
  return unwrap(native.policy(natives, rest));
}
