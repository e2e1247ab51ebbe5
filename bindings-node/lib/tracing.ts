// Knows the traced limiters, for code that has the limiter itself: web layers and wrapped functions. `opentelemetry.ts`
// adds the limiters. This file needs no OpenTelemetry.

import type { Decision } from './decision.js';
import type { PolicyLike } from './policy.js';
import type { AskedStep } from './tasks.js';

/** True if any limiter was ever traced. Each request tests it. */
let isTracing = false;

/** The limiter with spans, by the limiter itself. */
const TRACED = new WeakMap<object, object>();
/** The limiter itself, by the limiter with spans. */
const LIMITERS = new WeakMap<object, object>();

/** Makes the spans of requests. The limits of a request are asked in steps of one call. */
export interface StepSpans {
  /** Takes the steps of a request that began at that time. */
  ended(began: number, steps: readonly AskedStep[]): void;
  /** Called if the store has failed. */
  failed(began: number, error: unknown, policies: readonly PolicyLike[]): void;
  /** Takes the turn or the denial of a call that began to wait at that time. */
  turned(began: number, decision: Decision): void;
}

/** The maker of spans for each traced limiter. */
const SPANS = new WeakMap<object, StepSpans>();

/** From now on `traced` is asked instead of the limiter. */
export function traceCalls<Limiter extends object>(limiter: Limiter, traced: Limiter, spans: StepSpans): void {
  TRACED.set(limiter, traced);
  LIMITERS.set(traced, limiter);
  SPANS.set(limiter, spans);
  isTracing = true;
}

/** Returns the maker of request spans for a limiter. Undefined if it is not traced. */
export function spansOf(limiter: object): StepSpans | undefined {
  return isTracing ? SPANS.get(limiter) : undefined;
}

/** Returns the limiter to ask: the one with spans if the limiter is traced. */
export function asked<Limiter extends object>(limiter: Limiter): Limiter {
  return isTracing ? ((TRACED.get(limiter) as Limiter | undefined) ?? limiter) : limiter;
}

/** Returns the limiter behind one with spans, and any other limiter as it is. */
export function unwrapped<Limiter extends object>(limiter: Limiter): Limiter {
  return (LIMITERS.get(limiter) as Limiter | undefined) ?? limiter;
}
