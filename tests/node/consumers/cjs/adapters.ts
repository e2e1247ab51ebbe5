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
import onHono = require('tidegate/hono');
import onKoa = require('tidegate/koa');
import onNest = require('tidegate/nest');

async function main(): Promise<void> {
  const limiter = new tidegate.Limiter({ policies: { api: '100/minute' } });

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
  honoApp.use(onHono.rateLimit({ limiter, policy: 'api', key: 'hono', headers: 'ietf' }));
  honoApp.get('/', (context) => context.text('hello'));
  assert.match((await honoApp.request('/')).headers.get('ratelimit') ?? '', /"api";r=99/);

  const koa = new Koa();
  koa.use(onKoa.rateLimit({ limiter, policy: 'api', key: onKoa.header('x-api-key') }));

  const guard = new onNest.RateLimitGuard({ limiter, policy: 'api' });
  assert.equal(typeof guard.canActivate, 'function');

  // ESM and CommonJS load the same module.
  const loaded = await import('tidegate/fastify');
  assert.equal(loaded.rateLimit, onFastify.rateLimit);
  assert.equal(loaded.default, onFastify.default);
  await limiter.close();
  console.log('cjs adapters');
}

void main();
