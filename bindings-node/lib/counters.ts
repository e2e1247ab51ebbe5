/** What a limiter has counted since it was made; all zero for `memory://`. */
export interface Counters {
  /** Operations that were sent to a store that others share. */
  readonly asked: number;
  /** Denials that were repeated without asking. */
  readonly denyCache: number;
  /** Answers of `onStoreError: 'open'` … */
  readonly fallbackOpen: number;
  /** … of `'closed'` … */
  readonly fallbackClosed: number;
  /** … and of `'local'`. */
  readonly fallbackLocal: number;
  /** How often a store was given up for lost. */
  readonly lost: number;
  /** Operations that were not sent because the store was lost. */
  readonly withheld: number;
  /** Operations that failed with `store_unavailable` … */
  readonly storeUnavailable: number;
  /** … with `store_timeout` … */
  readonly storeTimeout: number;
  /** … and with `store_rejected`. */
  readonly storeRejected: number;
}
