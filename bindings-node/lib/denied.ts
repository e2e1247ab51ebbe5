import { performance } from 'node:perf_hooks';

import type { ManualClock } from './clock.js';
import {
  AT,
  COUNT,
  DELAY,
  DENIED_FOR,
  HEAD,
  LIMITS,
  type Numbers,
  PER_LIMIT,
  RESET,
  RETRY,
  SIMPLE,
  SOURCE,
  type Subject,
} from './decision.js';

/** Denials remembered at most; beyond that all are forgotten, which costs each one question. */
const MOST = 65_536;

const FROM_DENY_CACHE = 1 << SOURCE;
const SOURCES = 15 << SOURCE;

interface Denial {
  readonly subject: Subject;
  readonly cost: number;
  /** When the question was sent: no later than when it was answered, so that no denial lasts too long. */
  readonly sent: number;
  readonly until: number;
  readonly numbers: Numbers;
  /** Another policy or cost of the same key. */
  readonly next: Denial | undefined;
}

/**
 * Keys that are denied for some time to come, so that asking again costs no call.
 *
 * By key first: whatever gives something back to a key ends its denials under all names a policy may go by.
 */
export class Denied {
  readonly #longest: number;
  readonly #clock: ManualClock | undefined;
  readonly #denials = new Map<string, Denial>();
  /** Keys that something was given back to, and when: answers to older questions are not remembered. */
  readonly #touched = new Map<string, number>();
  #floor = 0;

  constructor(longestMs: number, clock: ManualClock | undefined) {
    this.#longest = longestMs;
    this.#clock = clock;
  }

  /** The time in milliseconds, since some moment. */
  now(): number {
    return this.#clock === undefined ? performance.now() : this.#clock.now();
  }

  /** The numbers of a Decision that is known without asking. */
  find(subject: Subject, key: string, cost: number): Numbers | undefined {
    let denial = this.#denials.get(key);
    while (denial !== undefined && (denial.subject !== subject || denial.cost !== cost)) denial = denial.next;
    if (denial === undefined) return undefined;
    const now = this.now();
    // A clock that was set back knows nothing of what it will say.
    if (now >= denial.until || now < denial.sent) {
      this.#denials.delete(key);
      return undefined;
    }
    return later(denial.numbers, Math.floor((now - denial.sent) * 1000));
  }

  /** Remembers a denial that answers a question sent then. */
  remember(subject: Subject, key: string, cost: number, sent: number, numbers: Numbers): void {
    const lasts = numbers[DENIED_FOR];
    if (lasts === 0 || (numbers[HEAD] & SOURCES) !== 0) return;
    if (sent < this.#floor || sent <= (this.#touched.get(key) ?? -1)) return;
    const ms = lasts < 0 ? this.#longest : Math.min(lasts / 1000, this.#longest);
    if (this.#denials.size >= MOST) this.#denials.clear();
    const next = this.#without(this.#denials.get(key), subject, cost);
    this.#denials.set(key, { subject, cost, sent, until: sent + ms, numbers, next });
  }

  #without(denial: Denial | undefined, subject: Subject, cost: number): Denial | undefined {
    // More than one of a key is rare, many are a mistake: only the newest other one is kept.
    if (denial === undefined || (denial.subject === subject && denial.cost === cost)) return undefined;
    return denial.next === undefined ? denial : { ...denial, next: undefined };
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
  const said: [...Numbers] = [...numbers];
  said[HEAD] |= FROM_DENY_CACHE;
  said[RETRY] = minus(said[RETRY], passed);
  said[RESET] = minus(said[RESET], passed);
  said[DELAY] = 0;
  said[AT] += passed;
  if ((said[HEAD] & SIMPLE) === 0) {
    for (let limit = said[HEAD] >> COUNT; limit > 0; limit--) {
      const at = LIMITS + (limit - 1) * PER_LIMIT;
      said[at + 3] = minus(said[at + 3] as number, passed);
      said[at + 4] = minus(said[at + 4] as number, passed);
    }
  }
  return said;
}
