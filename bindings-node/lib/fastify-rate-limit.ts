// A store for @fastify/rate-limit, for services that use that plugin.
//
//     await app.register(rateLimit, { max: 100, timeWindow: '1 minute', store: TidegateStore({ limiter }) });
//
// The plugin itself compares the count with its maximum, so the store only counts. It uses charges, which are admitted at any count.
// The plugin makes the store from a class, and asks it for a child for each route with its own limits.

import { ConfigError } from './errors.js';
import type { Limiter } from './limiter.js';
import type { PeerStoreOptions } from './peer-stores.js';
import { answered, MAX_HITS, numberOfHits, storeOptions, WINDOW_MS, windowOf } from './peer-stores.js';

/** The options of the store. The default prefix is `frl:`. */
export interface TidegateStoreOptions extends PeerStoreOptions {}

/** The answer of the store about a key. */
export interface Hits {
  /** The hits of the key in its window. */
  current: number;
  /** The time until the window ends, in milliseconds. */
  ttl: number;
}

type Callback = (error: Error | null, result?: Hits) => void;

/** The options of the plugin or of a route that the store reads. */
export interface PluginOptions {
  readonly continueExceeding?: boolean;
  readonly exponentialBackoff?: boolean;
  readonly ban?: number;
  readonly routeInfo?: { readonly method?: string | readonly string[]; readonly url?: string };
}

/** The store that the plugin makes. */
export interface FastifyRateLimitStore {
  incr(key: string, callback: Callback, timeWindow?: number, max?: number): void;
  read(key: string, callback: Callback, timeWindow?: number, max?: number): void;
  child(routeOptions: PluginOptions & object): FastifyRateLimitStore;
}

/** A class that you can give the plugin as `store`. */
export type FastifyRateLimitStoreClass = new (options: object) => FastifyRateLimitStore;

const WHERE = 'tidegate/fastify-rate-limit';

/** Counts the hits of clients. */
class Store implements FastifyRateLimitStore {
  readonly #continueExceeding: boolean;

  constructor(
    private readonly limiter: Limiter,
    private readonly prefix: string,
    options: PluginOptions,
  ) {
    if (options.exponentialBackoff) {
      throw new ConfigError(`${WHERE} has no exponentialBackoff: use tidegate/fastify with a policy with blockFor`);
    }
    this.#continueExceeding = options.continueExceeding === true;
    if (this.#continueExceeding && (options.ban ?? -1) >= 0) {
      throw new ConfigError(
        `${WHERE} does not count how often a client exceeds its limit: give continueExceeding or ban`,
      );
    }
  }

  /** Counts a hit. */
  incr(key: string, callback: Callback, timeWindow?: number, max?: number): void {
    this.#answer(callback, true, key, timeWindow, max);
  }

  /** Reads the count without a hit. */
  read(key: string, callback: Callback, timeWindow?: number, max?: number): void {
    this.#answer(callback, false, key, timeWindow, max);
  }

  /** Returns the store of a route, which counts for itself. */
  child(routeOptions: PluginOptions & object): Store {
    const { method = '', url = '' } = routeOptions.routeInfo ?? {};
    return new Store(this.limiter, `${this.prefix}${String(method)}${url}-`, routeOptions);
  }

  #answer(callback: Callback, isHit: boolean, key: string, timeWindow?: number, max?: number): void {
    this.#hits(isHit, this.prefix + key, timeWindow ?? WINDOW_MS, max ?? MAX_HITS).then(
      (hits) => callback(null, hits),
      (error) => callback(error as Error),
    );
  }

  async #hits(isHit: boolean, name: string, timeWindow: number, max: number): Promise<Hits> {
    const ms = Math.max(1, numberOfHits(timeWindow, 'timeWindow', WHERE));
    numberOfHits(max, 'max', WHERE);
    const policy = windowOf(ms);
    const asked = isHit ? this.limiter.charge(policy, name, 1) : this.limiter.peek(policy, name);
    const { limit, remaining, retryAfterMs, resetAfterMs } = answered(await asked);
    // A blocked key has nothing left, so its count is unknown.
    const current = Math.min(limit - remaining, remaining === 0 ? max + 1 : MAX_HITS);
    if (isHit && this.#continueExceeding && current > max) {
      // A client that goes on stays out for another window.
      await this.limiter.block(policy, name, ms);
      return { current, ttl: ms };
    }
    return { current, ttl: current === 0 ? 0 : Math.ceil(remaining === 0 ? (retryAfterMs ?? 0) : resetAfterMs) };
  }
}

/** Returns the class to give the plugin: `store: TidegateStore({ limiter })`. */
export function TidegateStore(options: TidegateStoreOptions): FastifyRateLimitStoreClass {
  const { limiter, prefix } = storeOptions(options, WHERE, 'frl:');
  return class extends Store {
    constructor(given: object) {
      super(limiter, prefix, given);
    }
  };
}
