// Spans of the web layers: of a limiter that is traced, and of the result of `traced`.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import express from 'express';
import { Hono } from 'hono';
import { Limiter, RateLimited } from 'tidegate';
import { rateLimit as limitExpress } from 'tidegate/express';
import { TidegateStore } from 'tidegate/express-rate-limit';
import { rateLimit as limitHono } from 'tidegate/hono';
import { traced } from 'tidegate/opentelemetry';
import { Servers } from '../../servers/servers.mjs';
import { get } from './client.mjs';
import { forEachAdapter } from './each_adapter.mjs';
import { listening } from './servers/listening.mjs';

const KEY = 'alice-the-key';
const policies = { login: 'fixed-window 2/minute', day: 'fixed-window 9/day', exports: 'concurrency 1' };
const DENIED = ['tidegate.denied', { 'tidegate.policy': 'login', 'tidegate.limit': 'fixed-window 2/60s' }];

const exporter = new InMemorySpanExporter();
const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const tracer = tracerProvider.getTracer('test');
let servers;
let prefixes = 0;

before(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  servers = await Servers.start('single');
});
after(() => servers?.close());

const inMemory = () => new Limiter({ policies });
const inRedis = () =>
  new Limiter({ store: servers.url, policies, timeoutMs: 5_000, denyCacheMs: 60_000, prefix: `spans${prefixes++}` });

/** The spans of some work, inside one span, which is the last. */
async function spansOf(work) {
  exporter.reset();
  const request = tracer.startSpan('request');
  await context.with(trace.setSpan(context.active(), request), work);
  request.end();
  const finished = exporter.getFinishedSpans();
  const shown = JSON.stringify(finished.map(({ name, attributes, events }) => [name, attributes, events]));
  assert.ok(!shown.includes(KEY) && !shown.includes('secret'), shown);
  return finished;
}

const eventsOf = ({ events }) => events.map(({ name, attributes }) => [name, attributes]);
const outcomeOf = ({ name, attributes }) => `${name} ${attributes['tidegate.outcome']}`;

/** The limiter that the web layer gets, and the moment when the limiter is traced. */
const WAYS = {
  'the limiter that was given': (limiter, serve) => {
    traced(limiter, { tracerProvider });
    return serve(limiter);
  },
  'the traced limiter': (limiter, serve) => serve(traced(limiter, { tracerProvider })),
  'a limiter that is traced later': async (limiter, serve) => {
    const served = await serve(limiter);
    traced(limiter, { tracerProvider });
    return served;
  },
};

forEachAdapter(({ serving }) => {
  for (const [way, traceBy] of Object.entries(WAYS)) {
    test(`${way}: a check is a span, and a denial an event of the request`, async (t) => {
      const limiter = inRedis();
      t.after(() => limiter.close());
      // Node handles a connection in the context of its server's call to listen.
      const finished = await spansOf(async () => {
        const serve = (given) => serving(t, { limits: [{ limiter: given, policy: 'login', key: () => KEY }] });
        const url = await traceBy(limiter, serve);
        const statuses = [];
        for (let call = 0; call < 4; call++) statuses.push((await get(url)).status);
        assert.deepEqual(statuses, [200, 200, 429, 429]);
      });
      const request = finished.at(-1);
      const calls = finished.slice(0, -1);
      // The fourth request was denied in process.
      assert.deepEqual(
        calls.map(({ name, attributes }) => [name, attributes]),
        ['allowed', 'allowed', 'denied'].map((outcome) => [
          'tidegate.check',
          {
            'tidegate.policy': 'login',
            'tidegate.outcome': outcome,
            'tidegate.source': 'store',
            'tidegate.store': Object.keys(limiter.stats().breaker)[0],
          },
        ]),
      );
      assert.ok(calls.every((call) => call.parentSpanContext?.spanId === request.spanContext().spanId));
      assert.deepEqual(eventsOf(request), [DENIED, DENIED]);
    });
  }

  test('several policies and holds', async (t) => {
    const limiter = inRedis();
    t.after(() => limiter.close());
    const given = traced(limiter, { tracerProvider });
    const finished = await spansOf(async () => {
      const url = await serving(t, {
        limits: [{ limiter: given, policy: ['exports', 'login', 'day'], key: () => KEY }],
      });
      for (const status of [200, 200, 429]) assert.equal((await get(url)).status, status);
    });
    assert.deepEqual(finished.slice(0, -1).map(outcomeOf), [
      ...['tidegate.hold allowed', 'tidegate.checkAll allowed'],
      ...['tidegate.hold allowed', 'tidegate.checkAll allowed'],
      ...['tidegate.hold allowed', 'tidegate.checkAll denied'],
    ]);
    assert.deepEqual(eventsOf(finished.at(-1)), [DENIED]);
  });
});

describe('the span that is current', () => {
  /** Makes a span of each request, named by its path. */
  const inSpan = (name, next) => {
    const span = tracer.startSpan(name);
    const end = () => span.end();
    return context.with(trace.setSpan(context.active(), span), () => next(end));
  };
  const paths = ['/a', '/b', '/a', '/b', '/a', '/b', '/a'];
  const expected = [...[0, 0, 1, 1].map((events) => ['/a', events]), ...[0, 0, 1].map((events) => ['/b', events])];
  const found = () =>
    exporter
      .getFinishedSpans()
      .map(({ name, events }) => [name, events.length])
      .sort();

  test('of Express is that of each request', async (t) => {
    const limiter = inMemory();
    traced(limiter, { tracerProvider });
    const app = express();
    app.use((request, response, next) => inSpan(request.path, (end) => response.on('finish', end) && next()));
    app.use(limitExpress({ limiter, policy: 'login', key: (request) => request.path }));
    app.use((_request, response) => response.send('ok'));
    const { url, close } = await listening(app.listen(0, '127.0.0.1'));
    t.after(close);
    exporter.reset();
    await Promise.all(paths.map((path) => get(url + path)));
    assert.deepEqual(found(), expected);
  });

  test('of Hono is that of each request', async () => {
    const limiter = inMemory();
    const app = new Hono();
    app.use((c, next) => inSpan(c.req.path, (end) => next().finally(end)));
    app.use(limitHono({ limiter: traced(limiter, { tracerProvider }), policy: 'login', key: (c) => c.req.path }));
    app.get('*', (c) => c.text('ok'));
    exporter.reset();
    await Promise.all(paths.map((path) => app.request(path)));
    assert.deepEqual(found(), expected);
  });
});

describe('a hono application', () => {
  const serve = (limiter, policy) => {
    const app = new Hono();
    app.use(limitHono({ limiter, policy, key: () => KEY }));
    app.get('/', (c) => c.text('ok'));
    return async () => (await app.request('/')).status;
  };

  test('a hold that is denied is one event', async () => {
    const limiter = inMemory();
    const request = serve(traced(limiter, { tracerProvider }), 'exports');
    const [span] = await spansOf(() => limiter.hold('exports', KEY, async () => assert.equal(await request(), 429)));
    assert.deepEqual(eventsOf(span), [
      ['tidegate.denied', { 'tidegate.policy': 'exports', 'tidegate.limit': 'concurrency 1' }],
    ]);
  });

  test('a store that is missing is a span with its error', async () => {
    const store = 'redis://user:secret@127.0.0.1:1';
    const gone = new Limiter({ store, policies, timeoutMs: 5_000, onStoreError: 'raise', logger: false });
    const request = serve(traced(gone, { tracerProvider }), 'login');
    const [failed] = await spansOf(async () => assert.equal(await request(), 503));
    assert.deepEqual([failed.attributes['error.type'], failed.status.code], ['store_unavailable', 2]);
    await gone.close();
  });

  test('has no events of a limiter that is not traced', async () => {
    traced(inMemory(), { tracerProvider });
    const request = serve(inMemory(), 'login');
    const [span, ...more] = await spansOf(async () => {
      for (const status of [200, 200, 429]) assert.equal(await request(), status);
    });
    assert.deepEqual([eventsOf(span), more], [[], []]);
  });
});

test('wrapped functions, a limiter that is traced twice, and the stores of other packages', async () => {
  const limiter = inMemory();
  const given = traced(traced(limiter, { tracerProvider }), { tracerProvider });
  const [span] = await spansOf(async () => {
    for (const one of [limiter, given]) {
      const wrapped = one.wrap('login', async () => 'ok', { key: KEY });
      assert.equal(await wrapped(), 'ok');
      if (one === given) await assert.rejects(wrapped(), RateLimited);
    }
    assert.ok(!(await given.check('login', KEY)).allowed);
  });
  assert.deepEqual(eventsOf(span), [DENIED, DENIED]);
  assert.equal((await new TidegateStore({ limiter: given }).increment(KEY)).totalHits, 1);
});
