// What one framework alone has: contexts, mounted routers, error handlers, a server that does not say who is connected.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fastifyCors from '@fastify/cors';
import express5 from 'express';
import express4 from 'express4';
import fastify5 from 'fastify';
import fastify4 from 'fastify4';
import { Hono } from 'hono';
import { Limiter, ManualClock, Policy, RateLimited } from 'tidegate';
import * as express from 'tidegate/express';
import * as fastify from 'tidegate/fastify';
import * as hono from 'tidegate/hono';
import { get } from './client.mjs';
import { listening } from './servers/listening.mjs';

const NOTATION = 'fixed-window 2/minute';
const policies = { all: 'fixed-window 9/minute', login: NOTATION, once: 'fixed-window 1/minute' };
const limiting = (more = {}) => new Limiter({ policies, clock: new ManualClock(1_704_067_200_000), ...more });

for (const [version, Fastify] of [
  [4, fastify4],
  [5, fastify5],
]) {
  describe(`Fastify ${version}`, () => {
    const statusOf = async (app, url) => (await app.inject(url)).statusCode;

    test('a registration in a context adds its limit to those around it', async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      const limiter = limiting();
      await app.register(fastify.rateLimit, { limiter, policy: 'all' });
      app.get('/outer', async () => 'outer');
      app.register(async (child) => {
        await child.register(fastify.rateLimit, { limiter, policy: 'login' });
        child.get('/inner', async (request) => request.rateLimit.policy);
        child.get('/own', { config: { rateLimit: { policy: 'once' } } }, async () => 'own');
        child.get('/free', { config: { rateLimit: false } }, async () => 'free');
      });
      const inner = await app.inject('/inner');
      assert.equal(inner.statusCode, 200, inner.body);
      assert.match(inner.headers['ratelimit'], /"all";r=8;t=60, "login";r=1;t=60/);
      assert.deepEqual([await statusOf(app, '/inner'), await statusOf(app, '/inner')], [200, 429]);
      assert.equal(await statusOf(app, '/outer'), 200);
      // A route's own limit replaces both, and only the innermost registration asks it.
      assert.match((await app.inject('/own')).headers['ratelimit'], /^"once";r=0;t=60$/);
      assert.equal((await app.inject('/free')).headers['ratelimit'], undefined);
    });

    test('two contexts with one notation count for themselves, and the prefix names them', async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      const limiter = limiting();
      for (const prefix of ['/a', '/b']) {
        app.register(
          async (child) => {
            await child.register(fastify.rateLimit, { limiter, policy: NOTATION });
            child.get('/one', async () => 'one');
            child.get('/two', async () => 'two');
          },
          { prefix },
        );
      }
      const seen = [];
      for (const url of ['/a/one', '/a/two', '/a/one', '/b/one']) seen.push(await statusOf(app, url));
      assert.deepEqual(seen, [200, 200, 429, 200]);
      assert.equal((await limiter.peek(NOTATION, '/a 127.0.0.1')).remaining, 0);
    });

    test("the application's error handler gets a refusal, after onDenied", async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      const limiter = limiting();
      const onDenied = (request) => (request.url === '/answered' ? { answered: true } : undefined);
      const errors = [];
      await app.register(fastify.rateLimit, { limiter, policy: 'once', key: (request) => request.url, onDenied });
      app.setErrorHandler((error, _request, reply) => {
        errors.push(error);
        return reply.send({ own: error.statusCode, policy: error.decision.policy });
      });
      app.get('/handled', async () => 'hello');
      app.get('/answered', async () => 'hello');
      await app.inject('/handled');
      const refused = await app.inject('/handled');
      assert.equal(refused.statusCode, 429);
      assert.deepEqual(refused.json(), { own: 429, policy: 'once' });
      assert.equal(refused.headers['retry-after'], '60');
      assert.ok(errors[0] instanceof RateLimited);
      assert.equal(errors[0].code, 'rate_limited');
      await app.inject('/answered');
      const answered = await app.inject('/answered');
      assert.deepEqual([answered.statusCode, answered.json()], [429, { answered: true }]);
      assert.equal(errors.length, 1);
    });

    test('a missing store goes the same way', async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      const limiter = limiting({ store: 'redis://127.0.0.1:1', onStoreError: 'raise', clock: undefined });
      t.after(() => limiter.close());
      await app.register(fastify.rateLimit, { limiter, policy: 'login' });
      app.get('/', async () => 'hello');
      const plain = await app.inject('/');
      assert.equal(plain.statusCode, 503);
      assert.match(plain.headers['content-type'], /^application\/problem\+json$/);
      const other = Fastify();
      t.after(() => other.close());
      other.setErrorHandler((error, _request, reply) => reply.code(error.statusCode).send({ code: error.code }));
      await other.register(fastify.rateLimit, { limiter, policy: 'login' });
      other.get('/', async () => 'hello');
      const handled = await other.inject('/');
      assert.equal(handled.statusCode, 503);
      assert.match(handled.json().code, /^store_/);
    });

    test('a setting that trusts every client is an error when the plugin is registered', async () => {
      const app = Fastify({ trustProxy: true });
      await assert.rejects(async () => app.register(fastify.rateLimit, { limiter: limiting(), policy: 'login' }), {
        code: 'config_invalid',
        message: /trustProxy/,
      });
    });

    test('a mistyped name in the config of a route is an error', async () => {
      const app = Fastify();
      await app.register(fastify.rateLimit, { limiter: limiting(), policy: 'login' });
      const declare = (config) => () => app.get('/', { config }, async () => 'hello');
      assert.throws(declare({ ratelimit: { policy: 'once' } }), { message: /did you mean rateLimit\?/ });
      assert.throws(declare({ rateLimit: { polcy: 'once' } }), { message: /did you mean policy\?/ });
      assert.throws(declare({ rateLimit: { max: 5, timeWindow: 1000 } }), { message: /no option max/ });
      assert.throws(declare({ rateLimit: true }), { code: 'config_invalid' });
      assert.throws(declare({ rateLimit: null }), { code: 'config_invalid' });
      assert.throws(declare({ rateLimit: { application: 'all' } }), { message: /option of the layer/ });
    });

    test('a route may name just a policy', async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      await app.register(fastify.rateLimit, { limiter: limiting() });
      app.get('/', { config: { rateLimit: NOTATION } }, async () => 'hello');
      const seen = [];
      for (let times = 0; times < 3; times++) seen.push(await statusOf(app, '/'));
      assert.deepEqual(seen, [200, 200, 429]);
    });
  });
}

test('Fastify: a refusal has the fields of CORS', async (t) => {
  const app = fastify5();
  t.after(() => app.close());
  await app.register(fastifyCors, { origin: 'https://app.example' });
  await app.register(fastify.rateLimit, { limiter: limiting(), policy: 'once' });
  app.get('/', async () => 'hello');
  const headers = { origin: 'https://app.example' };
  await app.inject({ url: '/', headers });
  const refused = await app.inject({ url: '/', headers });
  assert.equal(refused.statusCode, 429);
  assert.equal(refused.headers['access-control-allow-origin'], 'https://app.example');
  assert.equal(refused.headers['content-type'], 'application/problem+json');
});

for (const [version, Express] of [
  [4, express4],
  [5, express5],
]) {
  describe(`Express ${version}`, () => {
    async function serving(t, app) {
      const server = await listening(app.listen(0, '127.0.0.1'));
      t.after(() => server.close());
      return server.url;
    }
    const statuses = async (url, paths) => {
      const seen = [];
      for (const path of paths) seen.push((await get(url + path)).status);
      return seen;
    };
    const hello = (_request, response) => response.send('hello');

    test('the place of a mounted router is its pattern, not the path that a client chose', async (t) => {
      const limiter = limiting();
      const app = Express();
      const router = Express.Router();
      router.get('/login', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/tenants/:tenant', router);
      const url = await serving(t, app);
      assert.deepEqual(
        await statuses(url, ['/tenants/1/login', '/TENANTS/2/login', '/tenants/3/login']),
        [200, 200, 429],
      );
      if (version === 5) {
        assert.equal((await limiter.peek(NOTATION, '/tenants/:tenant/login 127.0.0.1')).remaining, 0);
      }
    });

    test('middleware at two mounts count for themselves, in whatever case a client writes them', async (t) => {
      const limiter = limiting();
      const app = Express();
      app.use('/a', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/b', express.rateLimit({ limiter, policy: NOTATION }), hello);
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/a', '/A', '/a/x', '/b', '/B/y', '/b']), [200, 200, 429, 200, 200, 429]);
      assert.equal((await limiter.peek(NOTATION, '/a 127.0.0.1')).remaining, 0);
    });

    test('an application in an application, and one middleware at two mounts', async (t) => {
      const limiter = limiting();
      const [app, inner] = [Express(), Express()];
      const shared = express.rateLimit({ limiter, policy: NOTATION });
      inner.get('/x', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/inner', inner);
      app.use('/one', shared, hello);
      app.use('/two', shared, hello);
      app.get('/x', express.rateLimit({ limiter, policy: NOTATION }), hello);
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/x', '/x', '/x', '/inner/x']), [200, 200, 429, 200]);
      assert.equal((await limiter.peek(NOTATION, '/inner/x 127.0.0.1')).remaining, 1);
      assert.deepEqual(await statuses(url, ['/one', '/one', '/one', '/two']), [200, 200, 429, 200]);
    });

    test('a notation whose place Express does not say is an error with the way out', async (t) => {
      const limiter = limiting();
      const app = Express();
      const errors = [];
      const wrapped = (middleware) => (request, response, next) => middleware(request, response, next);
      app.use('/a', wrapped(express.rateLimit({ limiter, policy: NOTATION })), hello);
      const named = new Policy(NOTATION, { name: 'named' });
      app.use('/b', wrapped(express.rateLimit({ limiter, policy: named })), hello);
      app.use((error, _request, response, _next) => {
        errors.push(error);
        response.status(500).end();
      });
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/a', '/b']), [500, 200]);
      assert.equal(errors[0].code, 'config_invalid');
      assert.match(errors[0].message, /new Policy\('5\/minute', \{ name: 'login' \}\)/);
    });

    test("onDenied: 'throw' gives refusals and missing stores to the error middleware", async (t) => {
      const limiter = limiting();
      const lost = limiting({ store: 'redis://127.0.0.1:1', onStoreError: 'raise', clock: undefined });
      t.after(() => lost.close());
      const app = Express();
      app.use('/once', express.rateLimit({ limiter, policy: 'once', onDenied: 'throw' }), hello);
      app.use('/lost', express.rateLimit({ limiter: lost, policy: 'once', onDenied: 'throw' }), hello);
      app.use((error, _request, response, _next) => {
        response.status(error.status).json({ code: error.code, wait: response.getHeader('retry-after') });
      });
      const url = await serving(t, app);
      await get(`${url}/once`);
      const refused = await get(`${url}/once`);
      assert.deepEqual([refused.status, JSON.parse(refused.body)], [429, { code: 'rate_limited', wait: '60' }]);
      const missing = await get(`${url}/lost`);
      assert.equal(missing.status, 503);
      assert.match(JSON.parse(missing.body).code, /^store_/);
    });
  });
}

describe('Hono', () => {
  test('without information about connections a request is an error with the way out', async () => {
    const app = new Hono();
    const errors = [];
    app.use(hono.rateLimit({ limiter: limiting(), policy: 'login' }));
    app.get('/', (context) => context.text('hello'));
    app.onError((error, context) => {
      errors.push(error);
      return context.text('failed', 500);
    });
    for (const env of [undefined, {}, { SECRET: 'a binding' }]) {
      assert.equal((await app.request('/', {}, env)).status, 500);
    }
    assert.equal(errors[0].code, 'key_invalid');
    assert.match(errors[0].message, /tidegate\/hono.*key:/);
  });

  test('the place of a middleware is its pattern, below those of the applications around it', async () => {
    const limiter = limiting();
    const here = () => hono.rateLimit({ limiter, policy: NOTATION, key: 'all' });
    const [app, inner] = [new Hono(), new Hono()];
    inner.use('/x/*', here());
    inner.get('/x/:id', (context) => context.text('x'));
    app.route('/inner', inner);
    app.use('/x/*', here());
    app.get('/x/:id', (context) => context.text('x'));
    const seen = [];
    for (const path of ['/x/1', '/x/2', '/x/3', '/inner/x/1']) seen.push((await app.request(path)).status);
    assert.deepEqual(seen, [200, 200, 429, 200]);
    assert.equal((await limiter.peek(NOTATION, '/inner/x/* all')).remaining, 1);
  });
});
