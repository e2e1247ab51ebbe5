// Which limiters are traced, for what holds a limiter itself: the web layers and wrapped functions. `opentelemetry.ts` adds the
// limiters. This file needs no OpenTelemetry.

/** Whether any limiter was ever traced: each request tests it. */
let isTracing = false;

/** By a limiter: the same with spans. */
const TRACED = new WeakMap<object, object>();
/** By what `traced` has returned: the limiter itself. */
const LIMITERS = new WeakMap<object, object>();

/** From now on `traced` is asked in the place of the limiter. */
export function traceCalls<Limiter extends object>(limiter: Limiter, traced: Limiter): void {
  TRACED.set(limiter, traced);
  LIMITERS.set(traced, limiter);
  isTracing = true;
}

/** What is asked in the place of a limiter: with spans where it is traced. */
export function asked<Limiter extends object>(limiter: Limiter): Limiter {
  return isTracing ? ((TRACED.get(limiter) as Limiter | undefined) ?? limiter) : limiter;
}

/** The limiter itself, from what `traced` has returned; any other as it is. */
export function unwrapped<Limiter extends object>(limiter: Limiter): Limiter {
  return (LIMITERS.get(limiter) as Limiter | undefined) ?? limiter;
}
