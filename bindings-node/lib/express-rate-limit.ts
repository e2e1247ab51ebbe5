// A store for express-rate-limit 7 and 8, for services that use that package.
//
//     app.use(rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore({ limiter }) }));
//
// express-rate-limit itself compares the count with its limit, and the limit may differ between requests. So the store
// only counts. It uses charges, which are admitted at any count.

import type { ClientRateLimitInfo, IncrementResponse, Options, Store } from 'express-rate-limit';
import type { Decision } from './decision.js';
import type { Limiter } from './limiter.js';
import { answered, numberOfHits, type PeerStoreOptions, storeOptions, WINDOW_MS, windowOf } from './peer-stores.js';
import type { Policy } from './policy.js';

/** The options of the store. The default prefix is `erl:`. */
export interface TidegateStoreOptions extends PeerStoreOptions {}

const WHERE = 'tidegate/express-rate-limit';

/** The longest period of a limit. */
const MAX_PERIOD_MS = 10 * 360 * 86_400_000;

/** Counts the hits of clients. */
export class TidegateStore implements Store {
  readonly prefix: string;
  /** False, because the stores of one limiter count the same keys, also in memory. */
  readonly localKeys = false;
  readonly #limiter: Limiter;
  #windowMs = WINDOW_MS;
  #hits = windowOf(WINDOW_MS);
  #resets = resetsOf(WINDOW_MS);
  /** A part of every key, which each `resetAll` changes. This is the value that this process read last. */
  #generation = '';

  constructor(options: TidegateStoreOptions) {
    const { limiter, prefix } = storeOptions(options, WHERE, 'erl:');
    this.#limiter = limiter;
    this.prefix = prefix;
  }

  /** Called by express-rate-limit, which does not await it. */
  init(options: Pick<Options, 'windowMs'> & Partial<Pick<Options, 'limit'>>): void {
    const { limit } = options;
    // If the limit were a text, no count would ever be above it.
    if (limit !== undefined && typeof limit !== 'function') numberOfHits(limit, 'limit', WHERE);
    this.#windowMs = numberOfHits(options.windowMs, 'windowMs', WHERE);
    this.#hits = windowOf(options.windowMs);
    this.#resets = resetsOf(options.windowMs);
  }

  /** Counts a hit. */
  async increment(key: string): Promise<IncrementResponse> {
    const hit = await this.#inGeneration((name) => this.#limiter.charge(this.#hits, name, 1), key);
    return this.#info(hit);
  }

  /** Takes a hit back. The count never goes below 0. */
  async decrement(key: string): Promise<void> {
    await this.#inGeneration((name) => this.#limiter.refund(this.#hits, name, 1), key);
  }

  /** Returns the count of a key, or undefined if it has no hits. */
  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const decision = await this.#inGeneration((name) => this.#limiter.peek(this.#hits, name), key);
    return decision.remaining === decision.limit ? undefined : this.#info(decision);
  }

  /** Forgets a key. */
  async resetKey(key: string): Promise<void> {
    await this.#inGeneration((name) => this.#limiter.clear(this.#hits, name), key);
  }

  /**
   * Forgets all keys of this prefix, in every process. It does not search for them. From now on keys have other names,
   * and the old ones end with their windows.
   */
  async resetAll(): Promise<void> {
    this.#generation = generationOf(await this.#limiter.charge(this.#resets, this.prefix, 1));
  }

  /** Does nothing: the application made the limiter, and closes it. */
  shutdown(): void {}

  /**
   * Makes a call about a key, and repeats it if a `resetAll` since the last call has changed the name of the key. The
   * call and the request for the generation travel together.
   */
  async #inGeneration<T>(call: (name: string) => Promise<T>, key: string): Promise<T> {
    const generation = this.#generation;
    const [resets, result] = await Promise.all([
      this.#limiter.peek(this.#resets, this.prefix),
      call(this.#name(generation, key)),
    ]);
    this.#generation = generationOf(resets);
    return this.#generation === generation ? result : call(this.#name(this.#generation, key));
  }

  #name(generation: string, key: string): string {
    return `${this.prefix}${generation}:${key}`;
  }

  #info(decision: Decision): ClientRateLimitInfo {
    // If a hit could not be counted, express-rate-limit decides by `passOnStoreError`.
    const { limit, remaining } = answered(decision);
    const totalHits = limit - remaining;
    if (totalHits > 0) return { totalHits, resetTime: decision.resetAt };
    return { totalHits: 1, resetTime: new Date(Date.now() + this.#windowMs) };
  }
}

/** Returns the policy that counts resets. Its period is longer than that of hits, so that a reset outlives every hit before it. */
function resetsOf(windowMs: number): Policy {
  return windowOf(Math.min(2 * windowMs, MAX_PERIOD_MS));
}

/** Returns a text that differs after each reset: the end of its window and the count in it. Empty if no reset is remembered. */
function generationOf(resets: Decision): string {
  const count = resets.limit - resets.remaining;
  return count === 0 ? '' : `${resets.resetAt.getTime()}.${count}`;
}
