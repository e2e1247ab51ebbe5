// The options of a limiter's calls.

import type { PolicyLike } from './policy.js';

/** The options of `check`. */
export interface CheckOptions {
  /** Units it consumes. Default 1. */
  cost?: number | undefined;
  /** Metadata that the journal remembers. */
  meta?: string | Uint8Array | undefined;
}

/** The options of calls that only have a cost. */
export interface CostOptions {
  /** Units it is about. Default 1. */
  cost?: number | undefined;
}

/** The options of `acquire`. */
export interface AcquireOptions extends CostOptions {
  /** The longest to wait. Default: as long as it takes. */
  timeoutMs?: number | undefined;
  /** Cancels the waiting: the call then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** The options of `hold`. */
export interface HoldOptions extends CostOptions {
  /** Cancels the waiting for the store: the call then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** An entry of `checkAll`: policy, key and cost, which is 1 by default. */
export type CheckEntry = readonly [policy: PolicyLike, key: string, cost?: number];

/** The options of `wrap`. */
export interface WrapOptions<A extends readonly unknown[]> {
  /** The key, or a function that makes it from the arguments. */
  key: string | ((...args: A) => string);
  /** Units each call consumes, or a function that makes them from the arguments. Default 1. */
  cost?: number | ((...args: A) => number);
}
