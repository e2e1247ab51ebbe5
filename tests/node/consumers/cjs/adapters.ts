// Every adapter, as a CommonJS project uses it.

import assert = require('node:assert/strict');
import express = require('express');
import erl = require('express-rate-limit');
import fastify = require('fastify');
import hono = require('hono');
import Koa = require('koa');
import tidegate = require('tidegate');
import onExpress = require('tidegate/express');
import store = require('tidegate/express-rate-limit');
import onFastify = require('tidegate/fastify');
import fastifyStore = require('tidegate/fastify-rate-limit');
import onFetch = require('tidegate/fetch');
import onHono = require('tidegate/hono');
import http = require('tidegate/http');
import onKoa = require('tidegate/koa');
import llm = require('tidegate/llm');
import mcp = require('tidegate/mcp');
import onNest = require('tidegate/nest');
import throttler = require('tidegate/nestjs-throttler');
import onOpenTelemetry = require('tidegate/opentelemetry');
import bullmq = require('tidegate/bullmq');
import outgoing = require('tidegate/outgoing');
import stores = require('tidegate/stores');
import onPrometheus = require('tidegate/prometheus');
import onTrpc = require('tidegate/trpc');
import onUndici = require('tidegate/undici');
import onWeb = require('tidegate/web');

async function main(): Promise<void> {
  const limiter = new tidegate.Limiter({ policies: { api: '100/minute' } });
  onPrometheus.collectMetrics(limiter, { name: 'cjs' });
  assert.equal(typeof bullmq.limited({ limiter, policy: 'api' }, async () => 1), 'function');
  assert.equal(typeof onFetch.pacedFetch({ limiter, policy: 'api' }), 'function');
  assert.equal(typeof onUndici.paced({ limiter, policy: 'api' }), 'function');
  assert.ok(new stores.NotApplied('busy') instanceof Error);
  assert.equal(outgoing.observations({ 'retry-after': '7' })[0]?.retryAfterMs, 7_000);
  onOpenTelemetry.meterLimiter(onOpenTelemetry.traced(limiter));

  const app = express();
  app.use(
    onExpress.rateLimit({ limiter, policy: 'api', key: onExpress.user(), skip: (request) => request.path === '/' }),
  );
  app.use(erl.rateLimit({ store: new store.TidegateStore({ limiter, prefix: 'mine:' }) }));
  app.get('/', (request, response) => {
    const decision: tidegate.Decision | undefined = request.rateLimit;
    response.json(decision?.remaining);
  });

  const server = fastify.fastify();
  await server.register(onFastify.rateLimit, { limiter, policy: 'api', key: onFastify.claim('sub') });
  server.get('/', async (request) => request.rateLimit?.remaining);
  assert.equal((await server.inject('/')).body, '99');
  await server.close();

  const honoApp = new hono.Hono();
  honoApp.use(onHono.rateLimit({ limiter, policy: 'api', key: () => 'hono', headers: 'ietf' }));
  honoApp.get('/', (context) => context.text('hello'));
  assert.match((await honoApp.request('/')).headers.get('ratelimit') ?? '', /"api";r=99/);

  const koa = new Koa();
  koa.use(onKoa.rateLimit({ limiter, policy: 'api', key: onKoa.header('x-api-key') }));

  assert.equal(
    typeof onFetch.pacedFetch({ limiter, policy: '9 tokens/s', ...llm.openaiPreset({ units: ['tokens'] }) }),
    'function',
  );
  assert.throws(() => mcp.limited({}, { limiter, policy: 'api' }), { code: 'config_invalid' });
  assert.equal(typeof onTrpc.limited({ limiter, policy: 'api', key: () => 'trpc' }), 'function');
  const hello = onWeb.rateLimit({ limiter, policy: 'api', key: onWeb.fixed('web') })(() => new Response('hello'));
  assert.match((await hello(new Request('http://localhost'))).headers.get('ratelimit') ?? '', /"api";r=99/);

  const guard = new onNest.RateLimitGuard({ limiter, policy: 'api' });
  assert.equal(typeof guard.canActivate, 'function');

  assert.equal(typeof fastifyStore.TidegateStore({ limiter }), 'function');
  assert.equal(typeof new throttler.TidegateStorage({ limiter }).increment, 'function');
  assert.equal(http.fields(await limiter.check('api', 'http'))['X-RateLimit-Limit'], '100');

  // A program may register the default export, or the module itself.
  const whole = fastify.fastify();
  await whole.register(onFastify.default, { limiter, policy: 'api' });
  await whole.close();

  // ESM and CommonJS load the same module.
  const loaded = await import('tidegate/fastify');
  assert.equal(loaded.rateLimit, onFastify.rateLimit);
  assert.equal(loaded.default, onFastify.default);
  await limiter.close();
  console.log('cjs adapters');
}

void main();
