// Metrics for prom-client.
//
//     import { register } from 'prom-client';
//     import { collectMetrics } from 'tidegate/prometheus';
//
//     collectMetrics(limiter);
//     app.get('/metrics', async (_, response) => response.type(register.contentType).send(await register.metrics()));
//
// The numbers are read when Prometheus scrapes. Between scrapes nothing runs. docs/metrics.md lists the metrics.

import { existsSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';
import { register as defaultRegistry, type Registry } from 'prom-client';
import { ConfigError } from './errors.js';
import { checkOptions } from './given-options.js';
import type { Limiter } from './limiter.js';
import { METRICS, type Metric, NamedLimiters } from './metric-list.js';

/** The options of `collectMetrics`. */
export interface CollectMetricsOptions {
  /** The registry. Default: prom-client's own. */
  readonly register?: Registry | undefined;
  /** The value of the label `limiter`. Several limiters of one registry need different ones. Default: `default`. */
  readonly name?: string | undefined;
}

/** The limiters of each registry. */
const limitersOf = new WeakMap<Registry, NamedLimiters>();

/** Registers the metrics of a limiter. */
export function collectMetrics(limiter: Limiter, options: CollectMetricsOptions = {}): void {
  const given = checkOptions(options, ['register', 'name'], 'collectMetrics', "name: 'api'");
  const { register = ownRegistry(), name = 'default' } = given;
  // A registry that was cleared has no metrics any more.
  const hasMetrics = register.getSingleMetric(METRICS[0]?.name ?? '') !== undefined;
  const known = hasMetrics ? limitersOf.get(register) : undefined;
  const limiters = known ?? new NamedLimiters();
  limiters.add(limiter, name);
  if (known !== undefined) return;
  for (const metric of METRICS) register.registerMetric(registered(metric, limiters) as never);
  limitersOf.set(register, limiters);
}

/** Returns prom-client's own registry. Throws if the application has another prom-client, because its registry would stay empty. */
function ownRegistry(): Registry {
  const own = foundFrom(__filename);
  const others = [process.argv[1] ?? '', join(process.cwd(), 'program.js')]
    .map(foundFrom)
    .filter((path) => path !== undefined);
  if (own === undefined || others.length === 0 || others.includes(own)) return defaultRegistry;
  throw new ConfigError(
    `collectMetrics found two copies of prom-client, ${own} for tidegate and ${others[0]} for the application, as with a package that ` +
      'is linked: the registry of the application would stay empty. Give it: collectMetrics(limiter, { register })',
  );
}

/** Returns the path at which a program finds prom-client, or undefined. */
function foundFrom(program: string): string | undefined {
  try {
    return createRequire(existsSync(program) ? realpathSync(program) : program).resolve('prom-client');
  } catch {
    return undefined;
  }
}

interface MetricValue {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

/** Returns a metric as registries read it. prom-client's own classes cannot be set to a number that was counted elsewhere. */
function registered(metric: Metric, limiters: NamedLimiters): object {
  const { name, help, kind: type } = metric;
  // The numbers of a cluster's processes are added up.
  const described = { name, help, type, aggregator: 'sum' };
  /** Returns the current values. */
  const get = async (): Promise<object> => {
    const values: MetricValue[] = [];
    for (const { labels, value } of limiters.samples(metric)) {
      if (typeof value === 'number') {
        values.push({ value, labels });
        continue;
      }
      for (const [index, total] of value.totals.entries()) {
        const bucket = { le: value.bounds[index] ?? '+Inf', ...labels };
        values.push({ value: total, labels: bucket, metricName: `${name}_bucket` });
      }
      values.push({ value: value.sum, labels, metricName: `${name}_sum` });
      values.push({ value: value.count, labels, metricName: `${name}_count` });
    }
    return { ...described, values };
  };
  // Nothing is reset, because Prometheus takes a counter that decreases for a restart.
  return { ...described, get, reset: () => {} };
}
