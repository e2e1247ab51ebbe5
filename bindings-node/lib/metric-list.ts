// The metrics of a limiter, as its exporters share them. docs/metrics.md has the same list.

import { ConfigError, describe } from './errors.js';
import { Limiter } from './limiter.js';
import type { Counters, Histogram, Stats } from './stats.js';

/** A metric: its name in Prometheus, its kind, and its labels beside `limiter`. */
export interface Metric {
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

/** A value of a metric, with the values of its labels. */
export interface Sample {
  readonly metric: Metric;
  readonly labels: readonly string[];
  readonly value: number | Histogram;
}

function counter(name: string, help: string, ...labels: string[]): Metric {
  return { name: `tidegate_${name}_total`, kind: 'counter', help, labels };
}

const DECISIONS = counter('decisions', 'Decisions by policy and outcome.', 'policy', 'outcome');
const ANSWERS = counter('answers', 'Decisions by policy and what gave the answer.', 'policy', 'source');
const NEAR_LIMIT = counter('near_limit', 'Admitted with 80 % or more of the limit used.', 'policy');
const SHADOW = counter('shadow_denials', 'Allowed, and a shadow policy would have denied.', 'policy');
const DURATION: Metric = {
  name: 'tidegate_store_call_duration_seconds',
  kind: 'histogram',
  help: 'How long calls to shared stores took.',
  labels: [],
};
const BATCH_SIZE: Metric = {
  name: 'tidegate_store_batch_size',
  kind: 'histogram',
  help: 'How many operations each script call carried.',
  labels: [],
};
const ERRORS = counter('store_errors', 'Calls to shared stores that failed, by error code.', 'code');
const STATE: Metric = {
  name: 'tidegate_store_state',
  kind: 'gauge',
  help: '1 for the state that a shared store is in.',
  labels: ['store', 'state'],
};
const FALLBACKS = counter('fallback_answers', 'Answers of onStoreError.', 'choice');

/** The events without a label, and their counters. */
const EVENTS: readonly (readonly [keyof Counters, Metric])[] = [
  ['asked', counter('store_operations', 'Operations that were sent to shared stores.')],
  ['withheld', counter('store_withheld', 'Operations that were not sent to a lost store.')],
  ['lost', counter('store_losses', 'How often a shared store was lost.')],
  ['denyCache', counter('deny_cache_answers', 'Denials that were repeated in process.')],
  ['lease', counter('lease_answers', 'Answers from units taken in advance.')],
  ['forgottenDenials', counter('forgotten_denials', 'Denials forgotten for lack of max_bytes.')],
  ['holdRenewalsFailed', counter('hold_renewals_failed', 'Renewals of holds that failed.')],
  ['holdsLost', counter('holds_lost', 'Holds that were lost.')],
  ['acquiresRefused', counter('acquires_refused', 'Calls of acquire that found no place to wait.')],
];

/** All of them. */
export const METRICS: readonly Metric[] = [
  ...[DECISIONS, ANSWERS, NEAR_LIMIT, SHADOW, DURATION, BATCH_SIZE, ERRORS, STATE, FALLBACKS],
  ...EVENTS.map(([, metric]) => metric),
];

/** The values of all metrics, from the stats of a limiter. */
export function samplesOf({ policies, store, breaker, counters }: Stats): Sample[] {
  const samples: Sample[] = [];
  const add = (metric: Metric, value: number | Histogram, ...labels: string[]): void => {
    samples.push({ metric, labels, value });
  };
  for (const [policy, counted] of Object.entries(policies)) {
    for (const outcome of ['allowed', 'denied', 'unavailable'] as const)
      add(DECISIONS, counted[outcome], policy, outcome);
    for (const [source, count] of Object.entries(counted.sources)) add(ANSWERS, count, policy, source);
    add(NEAR_LIMIT, counted.nearLimit, policy);
    add(SHADOW, counted.shadowDenied, policy);
  }
  add(DURATION, store.latency);
  add(BATCH_SIZE, store.batchSize);
  for (const [code, count] of Object.entries(store.errors)) add(ERRORS, count, code);
  for (const [url, state] of Object.entries(breaker)) {
    for (const other of ['ok', 'lost', 'refusing']) add(STATE, Number(state === other), url, other);
  }
  add(FALLBACKS, counters.fallbackOpen, 'open');
  add(FALLBACKS, counters.fallbackClosed, 'closed');
  add(FALLBACKS, counters.fallbackLocal, 'local');
  for (const [name, metric] of EVENTS) add(metric, counters[name]);
  return samples;
}

/** The limiters of an exporter, each under the name that tells it apart. */
export class NamedLimiters {
  readonly #limiters = new Map<string, Limiter>();

  add(limiter: Limiter, name: string): void {
    if (!(limiter instanceof Limiter)) throw new ConfigError(`limiter cannot be ${describe(limiter)}: give a Limiter`);
    if (typeof name !== 'string') throw new ConfigError(`name cannot be ${describe(name)}: it must be a text`);
    const other = this.#limiters.get(name);
    if (other !== undefined && other !== limiter) {
      throw new ConfigError(`there are two limiters of the name ${describe(name)}: give one another name`);
    }
    this.#limiters.set(name, limiter);
  }

  /** Each value, with the name of its limiter. */
  *samples(): Iterable<readonly [name: string, sample: Sample]> {
    for (const [name, limiter] of this.#limiters) {
      for (const sample of samplesOf(limiter.stats())) yield [name, sample];
    }
  }
}
