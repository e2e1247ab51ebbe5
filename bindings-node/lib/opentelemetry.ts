// Meters and spans for OpenTelemetry.
//
//     import { meterLimiter, traced } from 'tidegate/opentelemetry';
//
//     meterLimiter(limiter); // observable instruments, read when the meter provider exports
//     const limiter = traced(new Limiter({ store })); // the same calls, with a span for each call to a store
//     app.use(rateLimit({ limiter, policy })); // and so do the checks of a web layer
//
// A call that goes to a store is a span `tidegate.check` (or `charge`, `checkAll`, `acquire`, `hold`), with the attributes
// `tidegate.policy`, `tidegate.outcome`, `tidegate.source` and `tidegate.store`, which is a URL without secrets. A call that this
// process answers by itself, from memory, the deny cache, a lease or the fallback, makes no span. Every denial is an event
// `tidegate.denied` of the current span with `tidegate.policy` and `tidegate.limit`. The key is never part of any of
// them. docs/metrics.md lists the instruments.

import type { Attributes, MeterProvider, Tracer, TracerProvider } from '@opentelemetry/api';
import { context, metrics, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { type CheckEntry, checkEntriesOf } from './call-options.js';
import { Decision } from './decision.js';
import { ConfigError, describe, StoreError } from './errors.js';
import type { Hold } from './hold.js';
import { Limiter } from './limiter.js';
import { METRICS, type Metric, NamedLimiters } from './metric-list.js';
import type { PolicyLike } from './policy.js';
import { RateLimited } from './rate-limited.js';
import { type StepSpans, traceCalls, unwrapped } from './tracing.js';

/** The options of `meterLimiter`. */
export interface MeterOptions {
  /** The attribute `limiter` of all instruments. Default: `default`. */
  readonly name?: string | undefined;
  /** The global one by default. */
  readonly meterProvider?: MeterProvider | undefined;
}

/** The options of `traced`. */
export interface TraceOptions {
  /** The global one by default. */
  readonly tracerProvider?: TracerProvider | undefined;
}

/** The parts of a histogram, which OpenTelemetry cannot observe as a whole. */
const PARTS = ['bucket', 'count', 'sum'] as const;

/**
 * Makes observable instruments from a limiter's stats. Each of the two histograms becomes three observable counters, as
 * in Prometheus: `….bucket` with the attribute `le`, `….count` and `….sum`.
 */
export function meterLimiter(limiter: Limiter, options: MeterOptions = {}): void {
  const { name = 'default', meterProvider } = options;
  const limiters = new NamedLimiters();
  limiters.add(limiter, name);
  const meter = (meterProvider ?? metrics).getMeter('tidegate');
  const observe = (metric: Metric, part?: (typeof PARTS)[number]): void => {
    const fullName = part === undefined ? metric.dotted : `${metric.dotted}.${part}`;
    const described = { description: metric.help, unit: part === 'sum' ? metric.unit : '' };
    const instrument =
      metric.kind === 'gauge'
        ? meter.createObservableGauge(fullName, described)
        : meter.createObservableCounter(fullName, described);
    instrument.addCallback((result) => {
      for (const { labels, value } of limiters.samples(metric)) {
        if (typeof value === 'number') result.observe(value, labels);
        else if (part !== 'bucket') result.observe(part === 'sum' ? value.sum : value.count, labels);
        else {
          for (const [index, total] of value.totals.entries()) {
            result.observe(total, { ...labels, le: String(value.bounds[index] ?? '+Inf') });
          }
        }
      }
    });
  };
  for (const metric of METRICS) {
    if (metric.kind !== 'histogram') observe(metric);
    else for (const part of PARTS) observe(metric, part);
  }
}

/** The calls that decide. */
const TRACED: ReadonlySet<PropertyKey> = new Set(['check', 'charge', 'checkAll', 'acquire', 'hold']);

/**
 * Returns the limiter with spans. It has the same calls and every other member. From now on the web layers and wrapped
 * functions make spans, with the returned limiter and with the given one. Your own calls make spans only on the returned one.
 */
export function traced<Of extends Limiter>(given: Of, options: TraceOptions = {}): Of {
  if (!(given instanceof Limiter)) throw new ConfigError(`limiter must be a Limiter, not ${describe(given)}`);
  const limiter = unwrapped(given);
  const tracer = (options.tracerProvider ?? trace).getTracer('tidegate');
  const calls = new TracedCalls(tracer, limiter);
  const proxy = new Proxy(limiter, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      // The private fields belong to the limiter, not to the proxy.
      const bound = member.bind(target) as (...given: unknown[]) => unknown;
      return TRACED.has(name) ? calls.traced(String(name), bound as Call) : bound;
    },
  });
  traceCalls(limiter, proxy, calls.spansOfRequests);
  return proxy;
}

type Call = (...given: unknown[]) => Promise<unknown>;

class TracedCalls {
  readonly #tracer: Tracer;
  /** The URLs of the stores without secrets. Empty for memory. */
  readonly #store: string;

  readonly #limiter: Limiter;

  constructor(tracer: Tracer, limiter: Limiter) {
    this.#tracer = tracer;
    this.#limiter = limiter;
    this.#store = Object.keys(limiter.stats().breaker).sort().join(', ');
  }

  traced(name: string, call: Call): Call {
    return async (...asked) => {
      const began = Date.now();
      // Entries are copied, because they are read again if the call fails.
      const given = asked.map((one) => (name === 'checkAll' && isIterable(one) ? [...one] : one));
      // The work of a hold runs inside of the call, and is not part of the span.
      const holding = given.map((one) => {
        if (name !== 'hold' || typeof one !== 'function') return one;
        return (hold: Hold) => {
          this.#ended(name, began, hold.decision);
          return (one as (hold: Hold) => unknown)(hold);
        };
      });
      const works = holding.some((one, index) => one !== given[index]);
      try {
        const result = await call(...holding);
        if (!works) this.#ended(name, began, result instanceof Decision ? result : (result as Hold).decision);
        return result;
      } catch (error) {
        this.#failed(name, began, error, given[0]);
        throw error;
      }
    };
  }

  /** Makes the spans of requests. */
  readonly spansOfRequests: StepSpans = {
    ended: (began, steps) => {
      for (const { isHold, beganMs, endedMs, decision } of steps) {
        const name = isHold ? 'hold' : decision.decisions.length > 0 ? 'checkAll' : 'check';
        this.#ended(name, began + beganMs, decision, began + endedMs);
      }
    },
    turned: (began, decision) => {
      const holds = decision.limits.some(({ algorithm }) => algorithm === 'concurrency');
      this.#ended(holds ? 'hold' : 'acquire', began, decision);
    },
    failed: (began, error, policies) => {
      const held = policies.filter((policy) => this.#holds(policy)).slice(0, 1);
      const asked = held.length > 0 ? held : policies;
      const name = held.length > 0 ? 'hold' : policies.length > 1 ? 'checkAll' : 'check';
      const entries = asked.map((policy) => ({ policy, key: '' }));
      this.#failed(name, began, error, name === 'checkAll' ? entries : asked[0]);
    },
  };

  /** A limiter that was closed meanwhile knows no policies. */
  #holds(policy: PolicyLike): boolean {
    try {
      return this.#limiter.policy(policy).limits.some(({ algorithm }) => algorithm === 'concurrency');
    } catch {
      return false;
    }
  }

  #ended(name: string, began: number, decision: Decision, ended?: number): void {
    if (this.#store !== '' && decision.source === 'store') {
      const outcome = decision.allowed ? 'allowed' : decision.unavailable ? 'unavailable' : 'denied';
      const { policy, source } = decision;
      const attributes = { 'tidegate.policy': policy, 'tidegate.outcome': outcome, 'tidegate.source': source };
      this.#span(name, began, attributes, undefined, ended);
    }
    if (!decision.allowed) {
      const denied = { 'tidegate.policy': decision.policy, 'tidegate.limit': limitOf(decision) };
      trace.getActiveSpan()?.addEvent('tidegate.denied', denied);
    }
  }

  #failed(name: string, began: number, error: unknown, asked: unknown): void {
    if (error instanceof RateLimited) this.#ended(name, began, error.decision);
    else if (this.#store !== '' && error instanceof StoreError) {
      const attributes = { 'tidegate.outcome': 'error', 'error.type': error.code, ...this.#policiesOf(name, asked) };
      this.#span(name, began, attributes, error.code);
    }
  }

  #policiesOf(name: string, asked: unknown): Attributes {
    const entries = name === 'checkAll' ? checkEntriesOf(asked as CheckEntry[], []) : [{ policy: asked as PolicyLike }];
    try {
      return { 'tidegate.policy': entries.map(({ policy }) => this.#limiter.policy(policy).name).join(', ') };
    } catch {
      // A limiter that was closed meanwhile knows no policies.
      return {};
    }
  }

  /** Makes the span of a call that has ended. Only then it is known if the call went to a store. */
  #span(name: string, startTime: number, attributes: Attributes, failure?: string, endTime?: number): void {
    const all = { ...attributes, 'tidegate.store': this.#store };
    const options = { kind: SpanKind.CLIENT, startTime, attributes: all };
    const span = this.#tracer.startSpan(`tidegate.${name}`, options, context.active());
    // The message is left out, because it may show an argument of the caller.
    if (failure !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
    span.end(endTime);
  }
}

function isIterable(given: unknown): given is Iterable<unknown> {
  return typeof given === 'object' && given !== null && Symbol.iterator in given;
}

/** Returns the limit that refused, as its count and period. A `concurrency` limit has no period. */
function limitOf({ limits }: Decision): string {
  const refused = limits.find((limit) => limit.exceeded);
  if (refused === undefined) return '';
  const { algorithm, limit, periodMs } = refused;
  return algorithm === 'concurrency' ? `${algorithm} ${limit}` : `${algorithm} ${limit}/${periodMs / 1000}s`;
}
