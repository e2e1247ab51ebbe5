import { performance } from 'node:perf_hooks';

import type { ManualClock } from './clock.js';
import {
  AT,
  DELAY,
  DENIED_FOR,
  HEAD,
  LIMITS,
  type Numbers,
  type PolicyRef,
  RESET,
  RETRY,
  SIMPLE,
  SOURCE,
} from './decision.js';

/** Denials remembered at most; beyond that all are forgotten, which costs each one question. */
const MOST = 65_536;
/** The last tenth of its time a denial is left to the core, which lets one check through to renew it. */
const OURS = 0.9;

const FROM_DENY_CACHE = 1 << SOURCE;

interface Denial {
  readonly policyRef: PolicyRef;
  /** When the answer was there: what it says is counted from then. */
  readonly heard: number;
  /** Counted from when the question was sent, which was before it was answered: so that no denial lasts too long. */
  readonly until: number;
  readonly numbers: Numbers;
}

/**
 * Keys that are denied for some time to come. The core knows them too, and for how long; but asking it costs ten times as
 * much as looking here. So this only keeps what needs no rule to be repeated: one unit, of a policy with one limit. Nothing
 * is left of that, and the only thing that changes is how long it still takes.
 *
 * By key only: whatever gives something back to a key ends its denials under all names a policy may go by.
 */
export class DenyCache {
  readonly #clock: ManualClock | undefined;
  readonly #denials = new Map<string, Denial>();
  /** Keys that something was given back to, and when: answers to older questions are not remembered. */
  readonly #touched = new Map<string, number>();
  #floor = 0;
  #repeated = 0;

  constructor(clock: ManualClock | undefined) {
    this.#clock = clock;
  }

  /** The time in whole microseconds, since some moment. */
  now(): number {
    // The clock that is moved by hand stands at a whole microsecond, which its milliseconds may miss by a little.
    return this.#clock === undefined ? Math.floor(performance.now() * 1000) : Math.round(this.#clock.now() * 1000);
  }

  /** How many denials were repeated. */
  get repeated(): number {
    return this.#repeated;
  }

  /** Whether anything is known of a key. */
  knows(key: string): boolean {
    return this.#denials.has(key);
  }

  /** The numbers of a Decision that is known without asking. */
  find(policyRef: PolicyRef, key: string, cost: number): Numbers | undefined {
    const denial = this.#denials.get(key);
    if (denial === undefined || denial.policyRef !== policyRef || cost !== 1) return undefined;
    const now = this.now();
    // A clock that was set back tells of a time of which the store said nothing.
    if (now >= denial.until || now < denial.heard) {
      this.#denials.delete(key);
      return undefined;
    }
    this.#repeated++;
    return later(denial.numbers, now - denial.heard);
  }

  /** Remembers a denial that answers a question sent then. */
  remember(policyRef: PolicyRef, key: string, cost: number, sent: number, numbers: Numbers): void {
    if (cost !== 1 || (numbers[HEAD] & SIMPLE) === 0) return;
    if (sent < this.#floor || sent <= (this.#touched.get(key) ?? -1)) return;
    if (this.#denials.size >= MOST) this.#denials.clear();
    const until = sent + numbers[DENIED_FOR] * OURS;
    this.#denials.set(key, { policyRef, heard: this.now(), until, numbers });
  }

  /** Something may have been given back to a key. */
  forget(key: string): void {
    this.#denials.delete(key);
    if (this.#touched.size >= MOST) this.forgetAll();
    this.#touched.set(key, this.now());
  }

  /** Everything may be different. */
  forgetAll(): void {
    this.#denials.clear();
    this.#touched.clear();
    this.#floor = this.now();
  }
}

function minus(wait: number, passed: number): number {
  return wait < 0 ? wait : Math.max(0, wait - passed);
}

/** The same denial so many microseconds later. */
function later(numbers: Numbers, passed: number): Numbers {
  // A literal is made in one step, with its doubles inside.
  return [
    numbers[HEAD] | FROM_DENY_CACHE,
    numbers[1],
    numbers[2],
    minus(numbers[RETRY], passed),
    minus(numbers[RESET], passed),
    numbers[5],
    numbers[DELAY],
    numbers[7],
    numbers[8],
    numbers[AT] + passed,
    numbers[LIMITS],
  ];
}
