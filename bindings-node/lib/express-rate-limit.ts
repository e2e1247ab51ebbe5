// A store for express-rate-limit 8, for services that come from there.
//
//     app.use(rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore({ limiter }) }));
//
// express-rate-limit compares with its limit itself, which may be another for every request. So the store only counts: with
// charges, which are admitted whatever the count.

import type { ClientRateLimitInfo, IncrementResponse, Options, Store } from 'express-rate-limit';
import type { Decision } from './decision.js';
import { ConfigError, StoreError } from './errors.js';
import { isLocal, Limiter } from './limiter.js';
import { Limit, Policy } from './policy.js';

/** What the store is told. */
export interface TidegateStoreOptions {
  /** Who counts. */
  limiter: Limiter;
  /** What keys begin with; each of several stores on one Redis needs its own. Default `erl:`. */
  prefix?: string;
}

/** More hits than a window will see. */
const MOST = 1_000_000_000;
/** express-rate-limit's own default. */
const WINDOW_MS = 60_000;
/** The longest period of a limit. */
const LONGEST_MS = 10 * 360 * 86_400_000;

/** Counts the hits of clients. */
export class TidegateStore implements Store {
  readonly prefix: string;
  /** Whether other processes count by themselves. */
  readonly localKeys: boolean;
  readonly #limiter: Limiter;
  #windowMs = WINDOW_MS;
  #hits = hitsPolicy(WINDOW_MS);
  #resets = resetsPolicy(WINDOW_MS);
  /** What tells keys from those before the last `resetAll`, as this process last heard. */
  #age = '';

  constructor(options: TidegateStoreOptions) {
    if (!(options?.limiter instanceof Limiter)) {
      throw new ConfigError('tidegate/express-rate-limit: the option limiter is no Limiter of tidegate');
    }
    this.#limiter = options.limiter;
    this.prefix = options.prefix ?? 'erl:';
    this.localKeys = isLocal(options.limiter);
  }

  /** Called by express-rate-limit, which does not wait for it: there is nothing to wait for. */
  init(options: Pick<Options, 'windowMs'>): void {
    this.#windowMs = options.windowMs;
    this.#hits = hitsPolicy(options.windowMs);
    this.#resets = resetsPolicy(options.windowMs);
  }

  /** Counts a hit. */
  async increment(key: string): Promise<IncrementResponse> {
    const hit = await this.#young((name) => this.#limiter.charge(this.#hits, name, 1), key);
    return this.#info(hit);
  }

  /** Takes a hit back, down to none. */
  async decrement(key: string): Promise<void> {
    await this.#young((name) => this.#limiter.refund(this.#hits, name, 1), key);
  }

  /** What is counted of a key; nothing when nothing is. */
  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const seen = await this.#young((name) => this.#limiter.peek(this.#hits, name), key);
    return seen.remaining === seen.limit ? undefined : this.#info(seen);
  }

  /** Forgets a key. */
  async resetKey(key: string): Promise<void> {
    await this.#young((name) => this.#limiter.clear(this.#hits, name), key);
  }

  /**
   * Forgets all keys of this prefix, in every process. They are not looked for: from now on keys are other ones, and the old
   * ones end with their windows.
   */
  async resetAll(): Promise<void> {
    this.#age = ageOf(await this.#limiter.charge(this.#resets, this.prefix, 1));
  }

  /** The limiter belongs to whoever made it, and stays open. */
  shutdown(): void {}

  /** Does something with a key, and again when that was the key of before a `resetAll`. Both questions travel as one. */
  async #young<T>(call: (name: string) => Promise<T>, key: string): Promise<T> {
    const age = this.#age;
    const [resets, done] = await Promise.all([
      this.#limiter.peek(this.#resets, this.prefix),
      call(this.#name(age, key)),
    ]);
    this.#age = ageOf(resets);
    return this.#age === age ? done : call(this.#name(this.#age, key));
  }

  #name(age: string, key: string): string {
    return `${this.prefix}${age}:${key}`;
  }

  #info(decision: Decision): ClientRateLimitInfo {
    if (decision.limits.length > 0) {
      return { totalHits: decision.limit - decision.remaining, resetTime: decision.resetAt };
    }
    // Nobody could count: the policy for that says whether to go on.
    if (!decision.allowed) throw new StoreError('the store could not be asked, and on_store_error is closed');
    return { totalHits: 1, resetTime: new Date(Date.now() + this.#windowMs) };
  }
}

function hitsPolicy(windowMs: number): Policy {
  return new Policy([new Limit('fixed-window', MOST, { period: windowMs })]);
}

/** Remembered until no hit is left of before the last one, and longer. */
function resetsPolicy(windowMs: number): Policy {
  return new Policy([new Limit('fixed-window', MOST, { period: Math.min(2 * windowMs, LONGEST_MS) })]);
}

/** Other after each reset: its window's end, and which it is in that window. Nothing when all hits of before are over. */
function ageOf(resets: Decision): string {
  const count = resets.limit - resets.remaining;
  return count === 0 ? '' : `${resets.resetAt.getTime()}.${count}`;
}
