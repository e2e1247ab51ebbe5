// The exporters: prom-client and OpenTelemetry.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { AggregatorRegistry, Registry } from 'prom-client';
import { Limiter, ManualClock, Policy, RateLimited } from 'tidegate';
import { meterLimiter, traced } from 'tidegate/opentelemetry';
import { collectMetrics } from 'tidegate/prometheus';

import { Servers } from '../servers/servers.mjs';
import { LISTED } from './metric_list.mjs';

const UNREACHABLE = 'redis://user:secret@127.0.0.1:1';
const KEY = 'alice-the-key';

describe('prom-client', () => {
  it('refuses a registry that is not that of the application', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
    t.after(() => rmSync(folder, { recursive: true }));
    const root = fileURLToPath(new URL('../../', import.meta.url));
    const modules = join(folder, 'node_modules');
    mkdirSync(modules);
    // The package is linked, and the application has a separate prom-client.
    symlinkSync(root, join(modules, 'tidegate'));
    for (const name of ['prom-client', 'tdigest', 'bintrees', '@opentelemetry/api']) {
      cpSync(join(root, 'node_modules', name), join(modules, name), { recursive: true });
    }
    const program = join(folder, 'program.mjs');
    writeFileSync(
      program,
      `import { register } from 'prom-client';
import { Limiter } from 'tidegate';
import { collectMetrics } from 'tidegate/prometheus';
const limiter = new Limiter();
try {
  collectMetrics(limiter);
  console.log('collected');
} catch ({ code, message }) {
  console.log(code, message);
}
collectMetrics(limiter, { register });
console.log((await register.metrics()).includes('tidegate_'));
`,
    );
    // From any folder.
    for (const cwd of [folder, tmpdir()]) {
      const printed = execFileSync(process.execPath, [program], { cwd, encoding: 'utf8' });
      assert.match(printed, /^config_invalid .*two copies of prom-client.*\{ register \}.*\ntrue\n$/);
      assert.ok(printed.includes(folder), printed);
    }
  });

  it('has the metrics of the document, with the values of the stats', async () => {
    const register = new Registry();
    const limiter = new Limiter({ policies: { login: 'fixed-window 5/minute' }, clock: new ManualClock(0) });
    const jobs = new Limiter({ store: UNREACHABLE, timeoutMs: 5_000, logger: false });
    collectMetrics(limiter, { register });
    collectMetrics(jobs, { register, name: 'jobs' });
    for (let call = 0; call < 8; call++) await limiter.check('login', KEY);
    for (let call = 0; call < 5; call++) await jobs.check('1/minute', KEY);
    const text = await register.metrics();
    assert.ok(!text.includes(KEY) && !text.includes('secret'), text);
    assert.deepEqual(
      [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, kind]) => [name, kind]).sort(),
      LISTED.map(({ name, kind }) => [name, kind]).sort(),
    );
    for (const { name, kind, labels } of LISTED) {
      const sample = new RegExp(`^${name}${kind === 'histogram' ? '_bucket' : ''}\\{(.*)\\} `, 'm').exec(text);
      assert.ok(sample, name);
      const found = [...sample[1].matchAll(/(\w+)="/g)].map(([, label]) => label).filter((label) => label !== 'le');
      assert.deepEqual(found.sort(), ['limiter', ...labels].sort(), name);
    }
    const has = (line) => assert.ok(text.includes(line), `${line} in ${text}`);
    has('tidegate_decisions_total{limiter="default",policy="login",outcome="allowed"} 5');
    has('tidegate_decisions_total{limiter="default",policy="login",outcome="denied"} 3');
    has('tidegate_near_limit_total{limiter="default",policy="login"} 2');
    has('tidegate_store_call_duration_seconds_bucket{le="+Inf",limiter="jobs"} 3');
    has('tidegate_store_call_duration_seconds_count{limiter="jobs"} 3');
    has('state="lost"} 1');
    // What the primary of a cluster adds up.
    const aggregated = AggregatorRegistry.aggregate([
      await register.getMetricsAsJSON(),
      await register.getMetricsAsJSON(),
    ]);
    assert.match(await aggregated.metrics(), /tidegate_decisions_total\{.*outcome="allowed".*\} 10/);
    register.resetMetrics();
    const again = await register.metrics();
    assert.match(again, /tidegate_decisions_total\{.*outcome="allowed".*\} 5/, 'what was counted stays counted');
    register.clear();
    collectMetrics(limiter, { register });
    assert.match(await register.metrics(), /tidegate_decisions_total/);
    await jobs.close();
  });

  it('refuses what is wrong', () => {
    const register = new Registry();
    collectMetrics(new Limiter(), { register });
    assert.throws(() => collectMetrics(new Limiter(), { register }), /two limiters have the name "?'?default/);
    assert.throws(() => collectMetrics('memory://', { register: new Registry() }), /limiter must be a Limiter/);
    assert.throws(() => collectMetrics(new Limiter(), { registry: register }), /no option/);
  });
});

describe('OpenTelemetry', () => {
  const spans = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  let servers;
  before(async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  /** The spans of a request that does some work, the request last. */
  async function spansOf(work) {
    spans.reset();
    const request = tracerProvider.getTracer('test').startSpan('request');
    await context.with(trace.setSpan(context.active(), request), work);
    request.end();
    const finished = spans.getFinishedSpans();
    const shown = JSON.stringify(
      finished.map(({ name, attributes, events, status }) => [name, attributes, events, status]),
    );
    assert.ok(!shown.includes(KEY) && !shown.includes('secret'), shown);
    return finished;
  }

  it('has the instruments of the document', async () => {
    const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
    const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 60_000 });
    const meterProvider = new MeterProvider({ readers: [reader] });
    const limiter = new Limiter({
      store: UNREACHABLE,
      timeoutMs: 5_000,
      logger: false,
      policies: { login: '5/minute' },
    });
    for (let call = 0; call < 7; call++) await limiter.check('login', KEY);
    meterLimiter(limiter, { name: 'web', meterProvider });
    await reader.forceFlush();
    const metrics = exporter.getMetrics()[0].scopeMetrics[0].metrics;
    const expected = LISTED.flatMap(({ dotted, kind }) =>
      kind === 'histogram' ? ['bucket', 'count', 'sum'].map((part) => `${dotted}.${part}`) : [dotted],
    );
    assert.deepEqual(metrics.map(({ descriptor }) => descriptor.name).sort(), expected.sort());
    const units = metrics.map(({ descriptor: { name, unit } }) => [name, unit]).filter(([, unit]) => unit !== '');
    assert.deepEqual(units, [['tidegate.store_call_duration_seconds.sum', 's']]);
    const points = metrics.find(({ descriptor }) => descriptor.name === 'tidegate.decisions').dataPoints;
    const allowed = points.find(({ attributes }) => attributes.outcome === 'allowed');
    assert.deepEqual([allowed.value, allowed.attributes.limiter, allowed.attributes.policy], [5, 'web', 'login']);
    assert.ok(!JSON.stringify(metrics).includes(KEY));
    await meterProvider.shutdown();
    await limiter.close();
  });

  it('a call to a store is a span, and a denial an event', async () => {
    const plain = new Limiter({ store: servers.url, policies: { login: 'fixed-window 2/minute' }, timeoutMs: 5_000 });
    const limiter = traced(plain, { tracerProvider });
    const finished = await spansOf(async () => {
      for (let call = 0; call < 4; call++) await limiter.check('login', KEY);
      await limiter.peek('login', KEY);
    });
    const request = finished.at(-1);
    const calls = finished.slice(0, -1);
    // The fourth check was denied in process.
    assert.deepEqual(
      calls.map(({ name, attributes }) => [name, attributes['tidegate.outcome'], attributes['tidegate.source']]),
      ['allowed', 'allowed', 'denied'].map((outcome) => ['tidegate.check', outcome, 'store']),
    );
    assert.equal(calls[0].attributes['tidegate.store'], Object.keys(plain.stats().breaker)[0]);
    assert.equal(calls[0].parentSpanContext.spanId, request.spanContext().spanId);
    const denied = { 'tidegate.policy': 'login', 'tidegate.limit': 'fixed-window 2/60s' };
    assert.deepEqual(
      request.events.map(({ name, attributes }) => [name, attributes]),
      [
        ['tidegate.denied', denied],
        ['tidegate.denied', denied],
      ],
    );
    await limiter.close();
  });

  it('holds, failures, and memory', async () => {
    const limiter = traced(new Limiter({ store: servers.url, timeoutMs: 5_000 }), { tracerProvider });
    const held = await spansOf(async () => {
      await limiter.hold('concurrency 1', KEY, async () => {
        await assert.rejects(limiter.hold('concurrency 1', KEY), RateLimited);
      });
      assert.ok((await limiter.checkAll([['5/minute', KEY]])).allowed);
    });
    assert.deepEqual(
      held.slice(0, -1).map(({ name, attributes }) => `${name} ${attributes['tidegate.outcome']}`),
      ['tidegate.hold allowed', 'tidegate.hold denied', 'tidegate.checkAll allowed'],
    );
    await limiter.close();
    const [failed, all, request] = await spansOf(async () => {
      const memory = traced(new Limiter(), { tracerProvider });
      assert.ok((await memory.check('1/minute', KEY)).allowed);
      assert.ok(!(await memory.check('1/minute', KEY)).allowed);
      const failing = new Limiter({ store: UNREACHABLE, timeoutMs: 5_000, onStoreError: 'raise', logger: false });
      await assert.rejects(traced(failing, { tracerProvider }).check('5/minute', KEY));
      const named = new Policy('9/minute', { name: 'named' });
      const entries = [
        { policy: named, key: KEY },
        { policy: '6/minute', key: KEY },
      ];
      await assert.rejects(traced(failing, { tracerProvider }).checkAll(entries.values()));
    });
    assert.deepEqual([failed.attributes['error.type'], failed.status.code], ['store_unavailable', 2]);
    assert.deepEqual(
      [failed, all].map(({ attributes }) => attributes['tidegate.policy']),
      ['5/minute', 'named, 6/minute'],
    );
    assert.deepEqual(
      request.events.map(({ name }) => name),
      ['tidegate.denied'],
    );
  });
});
