import type { Source } from './decision.js';
import { native } from './native.js';
import type { StoreChange } from './store-changes.js';

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

/** How many values were at most each bound, and the sum of all. */
export interface Histogram {
  /** The upper bounds, each part of its bucket. */
  readonly bounds: readonly number[];
  /** The values of each bucket; the last one, beyond the bounds, has all that are greater. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly count: number;
}

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

/** Denials that were repeated in JavaScript, of one policy. */
export interface RepeatedDenials {
  denied: number;
  /** Those of a shadow policy, which allow. */
  shadow: number;
}

const SOURCES = native.sources() as Source[];

/** What a limiter repeated on this side. */
interface Repeats {
  readonly repeated: number;
  readonly repeatedBy: ReadonlyMap<string, RepeatedDenials>;
}

/** The counters of the native side, with the denials that were repeated on this one. */
export function countersOf(limiter: native.NativeLimiter, repeats: Repeats | undefined): Counters {
  const counters = limiter.counters();
  return { ...counters, denyCache: counters.denyCache + (repeats?.repeated ?? 0) };
}

/** The stats of the native side, with the denials that were repeated on this one. */
export function statsOf(limiter: native.NativeLimiter, repeats: Repeats | undefined): Stats {
  const counted = limiter.stats();
  const policies = Object.fromEntries(
    counted.policies.map(({ name, sources, ...outcomes }) => [
      name,
      { ...outcomes, sources: Object.fromEntries(SOURCES.map((source, index) => [source, sources[index] ?? 0])) },
    ]),
  ) as Record<string, Mutable<PolicyStats>>;
  for (const [name, { denied, shadow }] of repeats?.repeatedBy ?? []) {
    // The denial that is repeated was counted under this name, or under the one of all others.
    const stats = policies[name] ?? policies['(other)'];
    if (stats === undefined) continue;
    stats.denied += denied;
    stats.allowed += shadow;
    stats.shadowDenied += shadow;
    stats.sources = { ...stats.sources, 'deny-cache': stats.sources['deny-cache'] + denied + shadow };
  }
  return {
    policies,
    store: {
      calls: counted.latency.count,
      latency: counted.latency,
      batchSize: counted.batchSize,
      errors: Object.fromEntries(counted.errors.map(({ name, count }) => [name, count])),
    },
    breaker: Object.fromEntries(counted.breaker.map(({ store, condition }) => [store, condition])) as Stats['breaker'],
    counters: countersOf(limiter, repeats),
  };
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
