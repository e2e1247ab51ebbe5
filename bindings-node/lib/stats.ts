import type { Source } from './decision.js';
import type { native } from './native.js';
import type { StoreChange } from './store-changes.js';

/** What a limiter has counted since it was made; for `memory://` those of a shared store are zero. */
export type Counters = Readonly<native.Counters>;

/** How many values were at most each bound, and the sum of all. */
export interface Histogram {
  /** The upper bounds, each part of its bucket. */
  readonly bounds: readonly number[];
  /** The values of each bucket; the last one, beyond the bounds, has all that are greater. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

/** A value of a metric. That of a histogram also says how many values are at most each bound. */
export type MetricValue = number | (Histogram & { readonly totals: readonly number[] });

/** The Decisions of one policy. */
export interface PolicyStats {
  /** Decisions that allowed, also those of a shadow policy that would have denied, and every charge. */
  readonly allowed: number;
  /** Decisions by which a limit denied. */
  readonly denied: number;
  /** Denials because the store failed (`onStoreError: 'closed'`). */
  readonly unavailable: number;
  /** How many of the admitted found 80 % or more of the binding limit used. */
  readonly nearLimit: number;
  /** How many of the allowed a shadow policy would have denied. */
  readonly shadowDenied: number;
  /** All of them, by what gave the answer. */
  readonly sources: Readonly<Record<Source, number>>;
}

/** What a limiter has counted since it was made. No key is part of it. */
export interface Stats {
  /**
   * By policy: `check`, each entry of `checkAll`, `charge`, `hold`, and the last answer of `acquire`. The first 1,000 policies
   * count each by itself, all others as `(other)`.
   */
  readonly policies: Readonly<Record<string, PolicyStats>>;
  /** The calls to shared stores; zero for `memory://`. */
  readonly store: {
    readonly calls: number;
    /** How long they took, in seconds. */
    readonly latency: Histogram;
    /** How many operations each script call to a server carried. */
    readonly batchSize: Histogram;
    /** Calls that failed, by the code of the error. */
    readonly errors: Readonly<Record<string, number>>;
  };
  /** Each shared store by its URL without secrets. */
  readonly breaker: Readonly<Record<string, 'ok' | Exclude<StoreChange['state'], 'back'>>>;
  /** What `counters()` returns. */
  readonly counters: Counters;
}
