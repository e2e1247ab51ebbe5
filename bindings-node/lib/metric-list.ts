// The metrics of a limiter, for all of its exporters. The core has their list.

import { ConfigError, describe } from './errors.js';
import { Limiter, samplesIn } from './limiter.js';
import { native } from './native.js';
import type { MetricValue } from './stats.js';
import { unwrapped } from './tracing.js';

/** A metric: its names in Prometheus and in OpenTelemetry, its kind, its unit, its help text, and its labels. */
export interface Metric {
  readonly name: string;
  readonly dotted: string;
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly unit: string;
  readonly help: string;
  readonly labels: readonly string[];
}

/** A value of a metric, with its labels. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: MetricValue;
}

/** All metrics. */
export const METRICS = JSON.parse(native.metrics()) as readonly Metric[];

/** The limiters of an exporter, each under a unique name. */
export class NamedLimiters {
  readonly #limiters = new Map<string, Limiter>();

  add(limiter: Limiter, name: string): void {
    if (!(limiter instanceof Limiter)) throw new ConfigError(`limiter must be a Limiter, not ${describe(limiter)}`);
    if (typeof name !== 'string') throw new ConfigError(`name must be a text, not ${describe(name)}`);
    const other = this.#limiters.get(name);
    if (other !== undefined && other !== limiter) {
      throw new ConfigError(`two limiters have the name ${describe(name)}: give one another name`);
    }
    this.#limiters.set(name, limiter);
  }

  /** Yields each value of a metric. The label `limiter` is the name of the limiter. */
  *samples({ name, labels }: Metric): Iterable<Sample> {
    for (const [limiterName, limiter] of this.#limiters) {
      for (const [, given, value] of samplesIn(unwrapped(limiter), name)) {
        const named = labels.map((label, index) => [label, given[index] ?? '']);
        yield { labels: { limiter: limiterName, ...Object.fromEntries(named) }, value };
      }
    }
  }
}
