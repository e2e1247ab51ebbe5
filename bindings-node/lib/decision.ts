import { inspect } from 'node:util';

import { native } from './native.js';
import type { Algorithm, PolicyLike } from './policy.js';

/** Who answered: the store, this process from what it knew or had taken in advance, or nobody could. */
export type Source = 'store' | 'deny-cache' | 'lease' | 'fallback';

/** What one limit of the policy says. */
export interface LimitState {
  readonly algorithm: Algorithm;
  /** The most units it ever admits at once. */
  readonly limit: number;
  /** Its period; the ttl of the holds for `concurrency`. */
  readonly periodMs: number;
  /** Units it would admit now. */
  readonly remaining: number;
  /** When it would admit the cost: 0 when it does now, `null` when it never will. */
  readonly retryAfterMs: number | null;
  /** Until it is as if unused. */
  readonly resetAfterMs: number;
  /** Whether it refused. */
  readonly exceeded: boolean;
}

/** A policy as the limiter knows it. */
export interface PolicyRef {
  /** What the native side calls it. */
  readonly number: number;
  readonly name: string;
  /** Whether it has units that are held and given back. */
  readonly holds: boolean;
  /** How HTTP announces it, if it does. */
  readonly announcement?: native.Announcement;
  /** What the caller wrote. */
  readonly given: PolicyLike;
}

// `bindings-node/src/record.rs` writes what is read here.
export const ALLOWED = 1 << 4;
export const SHADOW = 1 << 5;
export const EXCEEDED = 1 << 6;
export const SIMPLE = 1 << 7;
export const SOURCE = 8;
export const UNAVAILABLE = 1 << 12;
export const COUNT = 16;

// Where the numbers of a Decision stand; a record has its ticket before them.
export const HEAD = 0;
export const LIMIT = 1;
export const REMAINING = 2;
export const RETRY = 3;
export const RESET = 4;
export const RESET_AT = 5;
export const DELAY = 6;
export const CHARGED = 7;
export const DENIED_FOR = 8;
/** The store's time of the answer. */
export const AT = 9;
export const LIMITS = 10;

/** The numbers of a Decision: those named above, and what the limits say. */
export type Numbers = readonly [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  ...number[],
];

type OneLimit = [kind: number, limit: number, remaining: number, retry: number, reset: number, flags: number];

/** Numbers of each limit, unless the Decision says all about the only one. */
export const PER_LIMIT = 6;

// Flags of one limit.
const REFUSED = 1;
const BINDS = 2;

const SOURCES: readonly Source[] = ['store', 'deny-cache', 'lease', 'fallback'];
const ALGORITHMS = native.algorithms() as readonly Algorithm[];

/** Microseconds as milliseconds; `null` for what never happens. */
function wait(micros: number): number | null {
  return micros < 0 ? null : micros / 1000;
}

function limitsOf(numbers: Numbers): readonly LimitState[] {
  const head = numbers[HEAD];
  if ((head & SIMPLE) !== 0) {
    const exceeded = (head & EXCEEDED) !== 0;
    const retry = exceeded ? numbers[RETRY] : 0;
    return [limitState(numbers[LIMITS], numbers[LIMIT], numbers[REMAINING], retry, numbers[RESET], exceeded)];
  }
  return Array.from({ length: head >> COUNT }, (_, index) => {
    const at = LIMITS + index * PER_LIMIT;
    const [kind, limit, remaining, retry, reset, flags] = numbers.slice(at, at + PER_LIMIT) as OneLimit;
    return limitState(kind, limit, remaining, retry, reset, (flags & REFUSED) !== 0);
  });
}

function limitState(
  kind: number,
  limit: number,
  remaining: number,
  retry: number,
  reset: number,
  exceeded: boolean,
): LimitState {
  return {
    algorithm: ALGORITHMS[kind % 16] as Algorithm,
    limit,
    periodMs: Math.floor(kind / 16) / 1000,
    remaining,
    retryAfterMs: wait(retry),
    resetAfterMs: reset / 1000,
    exceeded,
  };
}

/** Which limit `limit` and `remaining` are of. */
export function bindingOf(decision: Decision): number {
  const numbers = numbersOf(decision);
  const head = numbers[HEAD];
  if ((head & SIMPLE) !== 0) return 0;
  let index = (head >> COUNT) - 1;
  while (index > 0 && ((numbers[LIMITS + index * PER_LIMIT + 5] as number) & BINDS) === 0) index--;
  return index;
}

export let numbersOf: (decision: Decision) => Numbers;
export let policyRefOf: (decision: Decision) => PolicyRef;
export let chargedOf: (decision: Decision) => number;
export let sourceOf: (decision: Decision) => number;

/** The answer to a check. A denial is a Decision, never an error. */
export class Decision {
  /** The key that was asked about. */
  readonly key: string;
  /** The units that were asked for. */
  readonly cost: number;
  /** Of `checkAll`: one for each entry. Empty otherwise. */
  readonly decisions: readonly Decision[];
  // Not `#private`: making those costs more than all else about a Decision.
  private readonly _subject: PolicyRef;
  private readonly _numbers: Numbers;

  /** @internal */
  constructor(
    policyRef: PolicyRef,
    key: string,
    cost: number,
    numbers: Numbers,
    decisions: readonly Decision[] = NONE,
  ) {
    this.key = key;
    this.cost = cost;
    this.decisions = decisions;
    this._subject = policyRef;
    this._numbers = numbers;
  }

  /** May it go? */
  get allowed(): boolean {
    return (this._numbers[HEAD] & ALLOWED) !== 0;
  }

  /** The policy's name; its canonical notation when it has none. */
  get policy(): string {
    return this._subject.name;
  }

  /** The most units that the limit that binds ever admits at once. */
  get limit(): number {
    return this._numbers[LIMIT];
  }

  /** Units that the limit that binds would admit now: the one that refused, else the one with least left in proportion. */
  get remaining(): number {
    return this._numbers[REMAINING];
  }

  /**
   * When the same check is admitted if nobody else touches the key, in milliseconds: 0 when allowed, `null` for never. It
   * is exact to the microsecond, so round it up where whole milliseconds are needed.
   */
  get retryAfterMs(): number | null {
    return wait(this._numbers[RETRY]);
  }

  /** Until the limit that binds is as if unused. */
  get resetAfterMs(): number {
    return this._numbers[RESET] / 1000;
  }

  /** The moment the limit that binds is as if unused; the same between calls. */
  get resetAt(): Date {
    return new Date(this._numbers[RESET_AT] / 1000);
  }

  /** `leaky-bucket`: wait this long before going. */
  get delayMs(): number {
    return this._numbers[DELAY] / 1000;
  }

  /** Who answered. */
  get source(): Source {
    return SOURCES[(this._numbers[HEAD] >> SOURCE) & 15] ?? 'store';
  }

  /** Whether a shadow policy would have denied. */
  get shadow(): boolean {
    return (this._numbers[HEAD] & SHADOW) !== 0;
  }

  /**
   * Whether it is denied because the store is missing (`onStoreError: 'closed'`), not because a limit refused: a web layer
   * answers 503 then, and 429 otherwise.
   */
  get unavailable(): boolean {
    return (this._numbers[HEAD] & UNAVAILABLE) !== 0;
  }

  /** What each limit says, in the order of the policy. */
  get limits(): readonly LimitState[] {
    return limitsOf(this._numbers);
  }

  /** @internal The Decision of several, of which this one speaks for all. */
  withParts(decisions: readonly Decision[]): Decision {
    return new Decision(this._subject, this.key, this.cost, this._numbers, decisions);
  }

  /** All fields, as a plain object. */
  toJSON(): DecisionFields {
    const { allowed, policy, key, cost, limit, remaining, retryAfterMs, resetAfterMs, resetAt } = this;
    const { delayMs, limits, source, shadow } = this;
    const fields: DecisionFields = {
      allowed,
      policy,
      key,
      cost,
      limit,
      remaining,
      retryAfterMs,
      resetAfterMs,
      resetAt,
      delayMs,
      limits,
      source,
      shadow,
    };
    return this.decisions.length === 0
      ? fields
      : { ...fields, decisions: this.decisions.map((decision) => decision.toJSON()) };
  }

  [inspect.custom](depth: number, options: object, show: typeof inspect): string {
    return `Decision ${depth < 0 ? '{…}' : show(this.toJSON(), options)}`;
  }

  static {
    numbersOf = (decision) => decision._numbers;
    policyRefOf = (decision) => decision._subject;
    chargedOf = (decision) => decision._numbers[CHARGED];
    sourceOf = (decision) => (decision._numbers[HEAD] >> SOURCE) & 15;
  }
}

/** What a Decision says, as a plain object. */
export interface DecisionFields {
  allowed: boolean;
  policy: string;
  key: string;
  cost: number;
  limit: number;
  remaining: number;
  retryAfterMs: number | null;
  resetAfterMs: number;
  resetAt: Date;
  delayMs: number;
  limits: readonly LimitState[];
  source: Source;
  shadow: boolean;
  decisions?: readonly DecisionFields[];
}

const NONE: readonly Decision[] = Object.freeze([]);
