import { performance } from 'node:perf_hooks';
import * as layout from './array-layout.js';
import type { ManualClock } from './clock.js';
import type { Decision } from './decision.js';
import type { DecisionNumbers } from './decision-numbers.js';
import { native } from './native.js';
import type { PolicyRef } from './policy.js';
import type { RepeatedDenials } from './stats.js';

const { AT, DENIED_FOR, HEADER, NEVER, NEXT_AFTER, RESET_AFTER, RETRY_AFTER, SHADOW, SIMPLE, SOURCE_SHIFT } = layout;

/** The most denials that are kept. Beyond it all are dropped, which costs each key one call. */
const MAX_DENIALS = 65_536;
/** The longest key that is kept, in characters. The core keeps the denials of longer ones, as digests. */
const MAX_KEY_LENGTH = 64;
/** For how many microseconds it is known that units were given back: longer than any call is under way. */
const FORGOTTEN_FOR = 3_700_000_000;
/** The entries of each table that one call checks, whether they are over. */
const SWEPT = 2;
/** The policies whose repetitions are counted each by itself, as in the core. */
const MAX_COUNTED = 1_000;
const OTHERS = '(other)';
/** The last tenth of a denial's time is left to the core, which lets one check through to renew it. */
const SHARE_OF_TIME = 0.9;

const FROM_DENY_CACHE = native.sources().indexOf('deny-cache') << SOURCE_SHIFT;

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
  /** Where the search for denials that are over goes on, and the same for `#forgottenAt`. */
  #nextDenials = this.#denials.entries();
  /** When units were last given back to a key: answers to calls that were sent before are not remembered. */
  readonly #forgottenAt = new Map<string, number>();
  #nextForgotten = this.#forgottenAt.entries();
  /** The same for all keys. */
  #allForgottenAt = 0;
  #repeated = 0;
  /** The same by the names of the policies. */
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
      if (this.#denials.size > 0 || this.#forgottenAt.size > 0) this.#sweep();
      return undefined;
    }
    const now = this.now();
    // A clock that was set back shows a time about which the store said nothing.
    if (now >= denial.until || now < denial.receivedAt) {
      this.#denials.delete(key);
      return undefined;
    }
    this.#repeated++;
    if ((denial.numbers[HEADER] & SHADOW) === 0) denial.repeated.denied++;
    else denial.repeated.shadow++;
    return later(denial.numbers, now - denial.receivedAt);
  }

  /** Remembers a denial, the answer to a call that was sent at `sentAt`. */
  remember(policyRef: PolicyRef, key: string, cost: number, sentAt: number, numbers: DecisionNumbers): void {
    if (cost !== 1 || key.length > MAX_KEY_LENGTH || (numbers[HEADER] & SIMPLE) === 0) return;
    if (sentAt < this.#allForgottenAt || sentAt <= (this.#forgottenAt.get(key) ?? -1)) return;
    this.#sweep();
    if (this.#denials.size >= MAX_DENIALS) this.#denials.clear();
    const until = sentAt + numbers[DENIED_FOR] * SHARE_OF_TIME;
    const repeated = numbers.slice() as [...DecisionNumbers];
    repeated[HEADER] |= FROM_DENY_CACHE;
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
    if (key.length > MAX_KEY_LENGTH) return;
    this.#denials.delete(key);
    this.#sweep();
    if (this.#forgottenAt.size >= MAX_DENIALS) this.forgetAll();
    this.#forgottenAt.set(copied(key), this.now());
  }

  /** Removes a few entries that are over, so that what a flood took is given back. */
  #sweep(): void {
    const now = this.now();
    for (let count = 0; count < SWEPT; count++) {
      const { done, value } = this.#nextDenials.next();
      if (done) this.#nextDenials = this.#denials.entries();
      else if (now >= value[1].until) this.#denials.delete(value[0]);
    }
    for (let count = 0; count < SWEPT; count++) {
      const { done, value } = this.#nextForgotten.next();
      if (done) this.#nextForgotten = this.#forgottenAt.entries();
      else if (now >= value[1] + FORGOTTEN_FOR) this.#forgottenAt.delete(value[0]);
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
    this.#forgottenAt.clear();
    this.#allForgottenAt = this.now();
  }
}

/** A copy of a text. A text that was cut out of a longer one keeps the longer one in memory. */
export function copied(text: string): string {
  return ` ${text}`.slice(1);
}

function minus(wait: number, passed: number): number {
  return wait === NEVER ? wait : Math.max(0, wait - passed);
}

/** The same denial so many microseconds later. */
function later(numbers: DecisionNumbers, passed: number): DecisionNumbers {
  const copy = numbers.slice() as [...DecisionNumbers];
  copy[RETRY_AFTER] = minus(copy[RETRY_AFTER], passed);
  copy[NEXT_AFTER] = minus(copy[NEXT_AFTER], passed);
  copy[RESET_AFTER] = minus(copy[RESET_AFTER], passed);
  copy[AT] += passed;
  return copy;
}
