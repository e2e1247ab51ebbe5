// What calls of a limiter take beside policy and key.

import type { PolicyLike } from './policy.js';

/** What a check may be told. */
export interface CheckOptions {
  /** Units it consumes; 1 when not said. */
  cost?: number | undefined;
  /** What the journal remembers of it. */
  meta?: string | Uint8Array | undefined;
}

/** What other calls may be told. */
export interface CostOptions {
  /** Units it is about; 1 when not said. */
  cost?: number | undefined;
}

/** What `acquire` may be told. */
export interface AcquireOptions extends CostOptions {
  /** The longest to wait; as long as it takes when not said. */
  timeoutMs?: number | undefined;
  /** Gives the waiting up: the call then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** What `hold` may be told. */
export interface HoldOptions extends CostOptions {
  /** Gives the waiting for the store up: the call then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** An entry of `checkAll`: policy, key, and cost, 1 when not said. */
export type CheckEntry = readonly [policy: PolicyLike, key: string, cost?: number];

/** What `wrap` is told about the calls of a function. */
export interface WrapOptions<A extends readonly unknown[]> {
  /** The key, or what makes it of the arguments. */
  key: string | ((...args: A) => string);
  /** Units each call consumes, or what makes them of the arguments; 1 when not said. */
  cost?: number | ((...args: A) => number);
}
