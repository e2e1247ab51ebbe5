import { performance } from 'node:perf_hooks';
import { DecisionField, DecisionFlag, Header, Special } from '../binding/index.js';
import type { ManualClock } from './clock.js';
import type { DecisionNumbers, MutableNumbers } from './decision-numbers.js';
import { native } from './native.js';
import type { PolicyRef } from './policy.js';

/** The most denials to keep. When the cache is full it drops all of them, which costs each key one call. */
const MAX_DENIALS = 65_536;
/** The longest key to keep, in characters. The core keeps the denials of longer keys, as digests. */
const MAX_KEY_LENGTH = 64;
/** The number of denials that each call checks for their end. */
const SWEPT = 2;
/** The last tenth of a denial's time is left to the core, which lets one check through to renew it. */
const SHARE_OF_TIME = 0.9;

/** The real clock, read when this file was loaded. The fakes of tests stand still, and a denial would not end. */
const sinceStart = performance.now.bind(performance);

const FROM_DENY_CACHE = native.sources().indexOf('deny-cache') << Header.SourceShift;

interface Denial {
  readonly policyRef: PolicyRef;
  /** The time at which the answer came. Its waits count from then. */
  readonly receivedAt: number;
  /** The end of the denial. It counts from the sending of the call, so that no denial lasts too long. */
  readonly until: number;
  /** The index of the current generation of its key. */
  readonly place: number;
  /** The numbers of its first repetition. */
  readonly numbers: DecisionNumbers;
}

/**
 * Denials that still hold. The core keeps them too, but a call into the core costs ten times as much as a look-up here.
 * This cache keeps only denials that it can repeat without knowing the rules of a limit: of one unit, by a policy with
 * one limit. Such a limit has nothing left, and only its waits change.
 *
 * The core decides when a denial ends: each has the number of a generation, and is repeated only while that is current.
 */
export class DenyCache {
  readonly #clock: ManualClock | undefined;
  /** The current generations, which each crossing brings up to date. */
  readonly #generations: Float64Array;
  readonly #denials = new Map<string, Denial>();
  /** The place at which the next sweep goes on. */
  #next = this.#denials.entries();
  /** The policies with repeated denials that the core has not counted yet. */
  #repeated: PolicyRef[] = [];
  /** True while a call that may end denials waits to cross. Until then nothing is repeated. */
  waits = false;

  constructor(clock: ManualClock | undefined, generations: Float64Array) {
    this.#clock = clock;
    this.#generations = generations;
  }

  /** Returns the time in whole microseconds, counted from an arbitrary moment. */
  now(): number {
    // A manual clock stands at a whole microsecond. Its milliseconds may differ from that by a rounding error.
    return this.#clock === undefined ? Math.floor(sinceStart() * 1000) : Math.round(this.#clock.now() * 1000);
  }

  /** Returns the numbers of a denial that still holds. */
  find(policyRef: PolicyRef, key: string, cost: number): DecisionNumbers | undefined {
    if (key.length > MAX_KEY_LENGTH) return undefined;
    const denial = this.#denials.get(key);
    if (denial === undefined || denial.policyRef !== policyRef || cost !== 1 || this.waits) {
      if (this.#denials.size > 0) this.#sweep();
      return undefined;
    }
    const { numbers, receivedAt, until, place } = denial;
    const isCurrent = this.#generations[place] === numbers[DecisionField.Generation];
    const now = this.now();
    // The store's answer does not apply to the time before it, which a clock that was set back may show.
    if (!isCurrent || now >= until || now < receivedAt) {
      this.#denials.delete(key);
      return undefined;
    }
    if (policyRef.repeated++ === 0) this.#repeated.push(policyRef);
    return later(numbers, now - receivedAt);
  }

  /** Remembers a denial, the answer to a call that was sent at `sentAt`. */
  remember(policyRef: PolicyRef, key: string, cost: number, sentAt: number, numbers: DecisionNumbers): void {
    if (cost !== 1 || key.length > MAX_KEY_LENGTH || (numbers[DecisionField.Header] & DecisionFlag.Simple) === 0)
      return;
    this.#sweep();
    if (this.#denials.size >= MAX_DENIALS) this.#denials.clear();
    const until = sentAt + numbers[DecisionField.DeniedFor] * SHARE_OF_TIME;
    const repeated = numbers.slice() as MutableNumbers;
    repeated[DecisionField.Header] |= FROM_DENY_CACHE;
    const place = numbers[DecisionField.Generation] % this.#generations.length;
    this.#denials.set(copied(key), { policyRef, receivedAt: this.now(), until, place, numbers: repeated });
  }

  /** Calls `count` with each policy that has repeated denials, so that the core counts them. */
  takeRepeated(count: (policyRef: PolicyRef) => void): void {
    for (const policyRef of this.#repeated) {
      count(policyRef);
      policyRef.repeated = 0;
    }
    this.#repeated = [];
  }

  /** Removes a few denials that are over, so that the memory of a flood is freed. */
  #sweep(): void {
    const now = this.now();
    for (let count = 0; count < SWEPT; count++) {
      const { done, value } = this.#next.next();
      if (done) this.#next = this.#denials.entries();
      else if (now >= value[1].until) this.#denials.delete(value[0]);
    }
  }
}

/** Copies a text. Without that, a text cut out of a longer one keeps the longer one in memory. */
export function copied(text: string): string {
  return ` ${text}`.slice(1);
}

function minus(wait: number, passed: number): number {
  return wait === Special.Never ? wait : Math.max(0, wait - passed);
}

/** Returns the numbers of a denial that many microseconds later. */
function later(numbers: DecisionNumbers, passed: number): DecisionNumbers {
  const copy = numbers.slice() as MutableNumbers;
  copy[DecisionField.RetryAfter] = minus(copy[DecisionField.RetryAfter], passed);
  copy[DecisionField.NextAfter] = minus(copy[DecisionField.NextAfter], passed);
  copy[DecisionField.ResetAfter] = minus(copy[DecisionField.ResetAfter], passed);
  copy[DecisionField.At] += passed;
  return copy;
}
