import { performance } from 'node:perf_hooks';
import { DecisionField, DecisionFlag, Header, Special } from '../binding/index.js';
import type { ManualClock } from './clock.js';
import type { Decision } from './decision.js';
import type { DecisionNumbers, MutableNumbers } from './decision-numbers.js';
import { native } from './native.js';
import type { PolicyRef } from './policy.js';
import type { RepeatedDenials } from './stats.js';

/** The most denials that are kept. Beyond it all are dropped, which costs each key one call. */
const MAX_DENIALS = 65_536;
/** The longest key that is kept, in characters. The core keeps the denials of longer ones, as digests. */
const MAX_KEY_LENGTH = 64;
/** The denials that one call checks, whether they are over. */
const SWEPT = 2;
/** The policies whose repetitions are counted each by itself, as in the core. */
const MAX_COUNTED = 1_000;
const OTHERS = '(other)';
/** The last tenth of a denial's time is left to the core, which lets one check through to renew it. */
const SHARE_OF_TIME = 0.9;

const FROM_DENY_CACHE = native.sources().indexOf('deny-cache') << Header.SourceShift;

interface Denial {
  readonly policyRef: PolicyRef;
  /** When the answer was received. Its waits are counted from then. */
  readonly receivedAt: number;
  /** When it ends. It is counted from the moment the call was sent, so that no denial lasts too long. */
  readonly until: number;
  /** The numbers of its first repetition. */
  readonly numbers: DecisionNumbers;
  /** Where its repetitions are counted. */
  readonly repeated: RepeatedDenials;
}

/**
 * Denials that still hold. The core keeps them too, but a call into the core costs ten times as much as a look-up here. So
 * this cache keeps only denials that can be repeated without knowing a rule: of one unit, by a policy with one limit. Nothing
 * is left of such a limit, and only its waits change.
 *
 * Denials are found by the key alone: a call that gives units back to a key ends its denials under all policies.
 */
export class DenyCache {
  readonly #clock: ManualClock | undefined;
  readonly #denials = new Map<string, Denial>();
  /** Where the search for denials that are over goes on. */
  #next = this.#denials.entries();
  /** When units were last given back to any key: answers to calls that were sent before are not remembered here. */
  #changedAt = -1;
  #repeated = 0;
  /** Repeated denials by the names of their policies. */
  readonly repeatedBy = new Map<string, RepeatedDenials>();

  constructor(clock: ManualClock | undefined) {
    this.#clock = clock;
  }

  /** The time in whole microseconds, counted from any moment. */
  now(): number {
    // A manual clock stands at a whole microsecond, from which its milliseconds may differ by a rounding error.
    return this.#clock === undefined ? Math.floor(performance.now() * 1000) : Math.round(this.#clock.now() * 1000);
  }

  /** How many denials were repeated. */
  get repeated(): number {
    return this.#repeated;
  }

  /** Whether there is a denial of a key. */
  has(key: string): boolean {
    return this.#denials.has(key);
  }

  /** The numbers of a denial that still holds. */
  find(policyRef: PolicyRef, key: string, cost: number): DecisionNumbers | undefined {
    if (key.length > MAX_KEY_LENGTH) return undefined;
    const denial = this.#denials.get(key);
    if (denial === undefined || denial.policyRef !== policyRef || cost !== 1) {
      if (this.#denials.size > 0) this.#sweep();
      return undefined;
    }
    const now = this.now();
    // A clock that was set back shows a time about which the store said nothing.
    if (now >= denial.until || now < denial.receivedAt) {
      this.#denials.delete(key);
      return undefined;
    }
    this.#repeated++;
    if ((denial.numbers[DecisionField.Header] & DecisionFlag.Shadow) === 0) denial.repeated.denied++;
    else denial.repeated.shadow++;
    return later(denial.numbers, now - denial.receivedAt);
  }

  /** Remembers a denial, the answer to a call that was sent at `sentAt`. */
  remember(policyRef: PolicyRef, key: string, cost: number, sentAt: number, numbers: DecisionNumbers): void {
    if (cost !== 1 || key.length > MAX_KEY_LENGTH || (numbers[DecisionField.Header] & DecisionFlag.Simple) === 0)
      return;
    if (sentAt <= this.#changedAt) return;
    this.#sweep();
    if (this.#denials.size >= MAX_DENIALS) this.#denials.clear();
    const until = sentAt + numbers[DecisionField.DeniedFor] * SHARE_OF_TIME;
    const repeated = numbers.slice() as MutableNumbers;
    repeated[DecisionField.Header] |= FROM_DENY_CACHE;
    const counted = this.#countedAs(policyRef.name);
    this.#denials.set(copied(key), { policyRef, receivedAt: this.now(), until, numbers: repeated, repeated: counted });
  }

  #countedAs(policy: string): RepeatedDenials {
    const name = this.repeatedBy.has(policy) || this.repeatedBy.size < MAX_COUNTED ? policy : OTHERS;
    let repeated = this.repeatedBy.get(name);
    if (repeated === undefined) {
      repeated = { denied: 0, shadow: 0 };
      this.repeatedBy.set(name, repeated);
    }
    return repeated;
  }

  /** Forgets a key, because units may have been given back to it. */
  forget(key: string): void {
    this.#denials.delete(key);
    this.#changedAt = this.now();
  }

  /** Removes a few denials that are over, so that what a flood took is given back. */
  #sweep(): void {
    const now = this.now();
    for (let count = 0; count < SWEPT; count++) {
      const { done, value } = this.#next.next();
      if (done) this.#next = this.#denials.entries();
      else if (now >= value[1].until) this.#denials.delete(value[0]);
    }
  }

  /** Forgets a key before and after a call that may give units back to it. */
  async forgetDuring<T>(key: string, call: T | Promise<T>): Promise<T> {
    this.forget(key);
    try {
      return await call;
    } finally {
      this.forget(key);
    }
  }

  /** Forgets a key that is admitted now: another process may have given units back to it. */
  async forgetIfAllowed(key: string, answer: Promise<Decision>): Promise<Decision> {
    const decision = await answer;
    if (decision.allowed) this.forget(key);
    return decision;
  }

  /** Forgets all keys. */
  forgetAll(): void {
    this.#denials.clear();
    this.#changedAt = this.now();
  }
}

/** A copy of a text. A text that was cut out of a longer one keeps the longer one in memory. */
export function copied(text: string): string {
  return ` ${text}`.slice(1);
}

function minus(wait: number, passed: number): number {
  return wait === Special.Never ? wait : Math.max(0, wait - passed);
}

/** What a denial says so many microseconds later. */
function later(numbers: DecisionNumbers, passed: number): DecisionNumbers {
  const copy = numbers.slice() as MutableNumbers;
  copy[DecisionField.RetryAfter] = minus(copy[DecisionField.RetryAfter], passed);
  copy[DecisionField.NextAfter] = minus(copy[DecisionField.NextAfter], passed);
  copy[DecisionField.ResetAfter] = minus(copy[DecisionField.ResetAfter], passed);
  copy[DecisionField.At] += passed;
  return copy;
}
