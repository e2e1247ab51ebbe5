// Which limiters are traced, for what holds a limiter itself: the web layers and wrapped functions. `opentelemetry.ts` adds the
// limiters. This file needs no OpenTelemetry.

import type { PolicyLike } from './policy.js';
import type { AskedStep } from './tasks.js';

/** Whether any limiter was ever traced: each request tests it. */
let isTracing = false;

/** By a limiter: the same with spans. */
const TRACED = new WeakMap<object, object>();
/** By what `traced` has returned: the limiter itself. */
const LIMITERS = new WeakMap<object, object>();

/** Makes the spans of requests, whose limits are asked in steps of one call. */
export interface StepSpans {
  /** The steps of a request that began at that time. */
  ended(began: number, steps: readonly AskedStep[]): void;
  /** The store has failed. */
  failed(began: number, error: unknown, policies: readonly PolicyLike[]): void;
}

/** By a limiter that is traced. */
const SPANS = new WeakMap<object, StepSpans>();

/** From now on `traced` is asked in the place of the limiter. */
export function traceCalls<Limiter extends object>(limiter: Limiter, traced: Limiter, spans: StepSpans): void {
  TRACED.set(limiter, traced);
  LIMITERS.set(traced, limiter);
  SPANS.set(limiter, spans);
  isTracing = true;
}

/** What makes the spans of the requests of a limiter; undefined where it is not traced. */
export function spansOf(limiter: object): StepSpans | undefined {
  return isTracing ? SPANS.get(limiter) : undefined;
}

/** What is asked in the place of a limiter: with spans where it is traced. */
export function asked<Limiter extends object>(limiter: Limiter): Limiter {
  return isTracing ? ((TRACED.get(limiter) as Limiter | undefined) ?? limiter) : limiter;
}

/** The limiter itself, from what `traced` has returned; any other as it is. */
export function unwrapped<Limiter extends object>(limiter: Limiter): Limiter {
  return (LIMITERS.get(limiter) as Limiter | undefined) ?? limiter;
}
