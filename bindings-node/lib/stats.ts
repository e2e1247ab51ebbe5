import type { Source } from './decision.js';
import type { binding } from './native.js';
import type { StoreChange } from './store-changes.js';

/** The counters of a limiter since it was made. For `memory://` those of a shared store are zero. */
export type Counters = Readonly<binding.Counters>;

/** The number of values by upper bound, and the sum of all values. */
export interface Histogram {
  /** The upper bounds, each part of its bucket. */
  readonly bounds: readonly number[];
  /** The number of values in each bucket. The last one, beyond the bounds, has all that are greater. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** A value of a metric. For a histogram, `totals` are the numbers of values up to each bound. */
export type MetricValue = number | (Histogram & { readonly totals: readonly number[] });

/** The Decisions of one policy. */
export interface PolicyStats {
  /** Allowed Decisions, also those that a shadow policy would have denied, and every charge. */
  readonly allowed: number;
  /** Denials by a limit. */
  readonly denied: number;
  /** Denials because the store failed (`onStoreError: 'closed'`). */
  readonly unavailable: number;
  /** Allowed Decisions that found 80 % or more of the binding limit used. */
  readonly nearLimit: number;
  /** Allowed Decisions that a shadow policy would have denied. */
  readonly shadowDenied: number;
  /** All Decisions, by the source of the answer. */
  readonly sources: Readonly<Record<Source, number>>;
}

/** The numbers of a limiter since it was made. They contain no keys. */
export interface Stats {
  /**
   * The Decisions by policy: `check`, each entry of `checkAll`, `charge`, `hold`, and the last answer of `acquire`. The
   * first 1,000 policies count each by itself, all others as `(other)`.
   */
  readonly policies: Readonly<Record<string, PolicyStats>>;
  /** The calls to shared stores. Zero for `memory://`. */
  readonly store: {
    readonly calls: number;
    /** The duration of the calls, in seconds. */
    readonly latency: Histogram;
    /** The number of operations in each script call to a server. */
    readonly batchSize: Histogram;
    /** Calls that failed, by the code of the error. */
    readonly errors: Readonly<Record<string, number>>;
  };
  /** The state of each shared store, by its URL without secrets. */
  readonly breaker: Readonly<Record<string, 'ok' | Exclude<StoreChange['state'], 'back'>>>;
  /** The result of `counters()`. */
  readonly counters: Counters;
}
