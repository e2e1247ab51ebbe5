/** What a limiter has counted since it was made; for `memory://` those of a shared store are zero. */
export interface Counters {
  /** Operations that were sent to a shared store. */
  readonly asked: number;
  /** Denials that were repeated without asking the store. */
  readonly denyCache: number;
  /** Checks and peeks that were answered from units taken in advance. */
  readonly lease: number;
  /** Answers that `onStoreError: 'open'` gave because the store failed. */
  readonly fallbackOpen: number;
  /** Answers that `'closed'` gave. */
  readonly fallbackClosed: number;
  /** Answers that `'local'` gave. */
  readonly fallbackLocal: number;
  /** How many times a store was lost. */
  readonly lost: number;
  /** Operations that were not sent because the store was lost. */
  readonly withheld: number;
  /** Operations that failed with `store_unavailable`. */
  readonly storeUnavailable: number;
  /** Operations that failed with `store_timeout`. */
  readonly storeTimeout: number;
  /** Operations that failed with `store_rejected`. */
  readonly storeRejected: number;
  /** Denials that the memory of this process forgot before their time, because `max_bytes` left no room for more. */
  readonly forgottenDenials: number;
  /** Renewals of holds that the store did not answer. */
  readonly holdRenewalsFailed: number;
  /** Calls of `acquire` that were denied at once because too many callers waited already. */
  readonly acquiresRefused: number;
  /** Holds that were lost. */
  readonly holdsLost: number;
}
