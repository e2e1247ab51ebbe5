import { performance } from 'node:perf_hooks';
import { DecisionField, DecisionFlag, Header, Special } from '../binding/index.js';
import type { ManualClock } from './clock.js';
import type { DecisionNumbers, MutableNumbers } from './decision-numbers.js';
import { native } from './native.js';
import type { PolicyRef } from './policy.js';

/** The most denials that are kept. Beyond it all are dropped, which costs each key one call. */
const MAX_DENIALS = 65_536;
/** The longest key that is kept, in characters. The core keeps the denials of longer ones, as digests. */
const MAX_KEY_LENGTH = 64;
/** The denials that one call checks, whether they are over. */
const SWEPT = 2;
/** The last tenth of a denial's time is left to the core, which lets one check through to renew it. */
const SHARE_OF_TIME = 0.9;

/** As it was when this was loaded: the fakes that tests put in its place stand still, and a denial would not end. */
const sinceStart = performance.now.bind(performance);

const FROM_DENY_CACHE = native.sources().indexOf('deny-cache') << Header.SourceShift;

interface Denial {
  readonly policyRef: PolicyRef;
  /** When the answer was received. Its waits are counted from then. */
  readonly receivedAt: number;
  /** When it ends. It is counted from the moment the call was sent, so that no denial lasts too long. */
  readonly until: number;
  /** Where the current generation of its key is. */
  readonly place: number;
  /** The numbers of its first repetition. */
  readonly numbers: DecisionNumbers;
}

/**
 * Denials that still hold. The core keeps them too, but a call into the core costs ten times as much as a look-up here. So
 * this cache keeps only denials that can be repeated without knowing a rule: of one unit, by a policy with one limit. Nothing
 * is left of such a limit, and only its waits change.
 *
 * The core says what ends a denial: each has the number of a generation, and is repeated only while that is the current one.
 */
export class DenyCache {
  readonly #clock: ManualClock | undefined;
  /** The current generations, which each crossing brings up to date. */
  readonly #generations: Float64Array;
  readonly #denials = new Map<string, Denial>();
  /** Where the search for denials that are over goes on. */
  #next = this.#denials.entries();
  /** The policies whose repeated denials the core has not counted yet. */
  #repeated: PolicyRef[] = [];
  /** A call that may end denials waits for its crossing: until then nothing is repeated. */
  waits = false;

  constructor(clock: ManualClock | undefined, generations: Float64Array) {
    this.#clock = clock;
    this.#generations = generations;
  }

  /** The time in whole microseconds, counted from any moment. */
  now(): number {
    // A manual clock stands at a whole microsecond, from which its milliseconds may differ by a rounding error.
    return this.#clock === undefined ? Math.floor(sinceStart() * 1000) : Math.round(this.#clock.now() * 1000);
  }

  /** The numbers of a denial that still holds. */
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
    // A clock that was set back shows a time about which the store said nothing.
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

  /** Calls a function with each policy whose denials were repeated, so that the core counts them. */
  takeRepeated(count: (policyRef: PolicyRef) => void): void {
    for (const policyRef of this.#repeated) {
      count(policyRef);
      policyRef.repeated = 0;
    }
    this.#repeated = [];
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
