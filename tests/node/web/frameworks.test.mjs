// Features of one framework alone: contexts, error handlers, functions that call a middleware, a server that does not
// know who is connected. Express has a separate file.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { describe, test } from 'node:test';
import fastifyCors from '@fastify/cors';
import fastify5 from 'fastify';
import fastify4 from 'fastify4';
import { Hono } from 'hono';
import Koa from 'koa';
import { Limiter, ManualClock, RateLimited } from 'tidegate';
import * as fastify from 'tidegate/fastify';
import * as hono from 'tidegate/hono';
import * as koa from 'tidegate/koa';
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

    test('a route / below a prefix has one budget, with and without a slash', async () => {
      const limiter = limiting();
      const app = Fastify();
      await app.register(fastify.rateLimit, { limiter });
      await app.register(
        async (context) => {
          context.get('/', { config: { rateLimit: NOTATION } }, async () => 'hello');
          context.get('/x/', { config: { rateLimit: NOTATION } }, async () => 'hello');
        },
        { prefix: '/p' },
      );
      const seen = [];
      for (const path of ['/p', '/p/', '/p', '/p/', '/p/x/']) seen.push(await statusOf(app, path));
      assert.deepEqual(seen, [200, 200, 429, 429, 200]);
      assert.equal((await limiter.peek(NOTATION, '/p 127.0.0.1')).remaining, 0);
      assert.equal((await limiter.peek(NOTATION, '/p/x/ 127.0.0.1')).remaining, 1);
      await app.close();
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

    test('the error of onDenied is a 500 where nothing handles it', async (t) => {
      const app = Fastify();
      t.after(() => app.close());
      const onDenied = () => Promise.reject(new TypeError('a bug'));
      await app.register(fastify.rateLimit, { limiter: limiting(), policy: 'once', onDenied });
      app.get('/', async () => 'hello');
      assert.deepEqual([await statusOf(app, '/'), await statusOf(app, '/')], [200, 500]);
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

describe('Koa', () => {
  test('a second notation that functions call without a route is an error with the way out', async (t) => {
    const limiter = limiting();
    const app = new Koa();
    const errors = [];
    app.on('error', (error) => errors.push(error));
    app.use(koa.rateLimit({ limiter, policy: 'fixed-window 9/minute' }));
    // As koa-route does it.
    const at = (path, middleware) => (context, next) => (context.path === path ? middleware(context, next) : next());
    const here = () => koa.rateLimit({ limiter, policy: NOTATION });
    app.use(at('/a', here()));
    app.use(at('/b', here()));
    app.use((context) => {
      context.body = 'hello';
    });
    const server = await listening(createServer(app.callback()).listen(0, '127.0.0.1'));
    t.after(() => server.close());
    const seen = [];
    for (const path of ['/a', '/b', '/a', '/a', '/c']) seen.push((await get(server.url + path)).status);
    assert.deepEqual(seen, [200, 500, 200, 429, 200]);
    assert.match(errors[0].message, /new Policy\('5\/minute', \{ name: 'login' \}\)/);
  });

  test('so it is below a mount, where a notation alone counts for the mount', async (t) => {
    const limiter = limiting();
    const app = new Koa();
    const errors = [];
    app.on('error', (error) => errors.push(error));
    // As koa-mount does it.
    app.use((context, next) => {
      if (!context.path.startsWith('/v1')) return next();
      context.mountPath = '/v1';
      context.path = context.path.slice('/v1'.length);
      return next();
    });
    const at = (path, middleware) => (context, next) => (context.path === path ? middleware(context, next) : next());
    const here = () => koa.rateLimit({ limiter, policy: NOTATION });
    app.use(at('/a', here()));
    app.use(at('/b', here()));
    app.use((context) => {
      context.body = 'hello';
    });
    const server = await listening(createServer(app.callback()).listen(0, '127.0.0.1'));
    t.after(() => server.close());
    const seen = [];
    for (const path of ['/v1/a', '/v1/b', '/v1/a', '/v1/a', '/v1/c']) seen.push((await get(server.url + path)).status);
    assert.deepEqual(seen, [200, 500, 200, 429, 200]);
    assert.match(errors[0].message, /new Policy\('5\/minute', \{ name: 'login' \}\)/);
  });
});

describe('Hono', () => {
  test('a second notation that functions call without a route is an error with the way out', async () => {
    const limiter = limiting();
    const here = () => hono.rateLimit({ limiter, policy: NOTATION, key: () => 'all' });
    const [app, inner, errors] = [new Hono(), new Hono(), []];
    const [a, b, c] = [here(), here(), here()];
    app.onError((error, context) => {
      errors.push(error);
      return context.text('failed', 500);
    });
    inner.onError((error) => {
      throw error;
    });
    app.use((context, next) => (context.req.path === '/a' ? a(context, next) : next()));
    app.use((context, next) => (context.req.path === '/b' ? b(context, next) : next()));
    app.get('/c', (context, next) => c(context, next));
    inner.use('/*', here());
    inner.get('/', (context) => context.text('hello'));
    app.route('/inner', inner);
    app.get('*', (context) => context.text('hello'));
    const seen = [];
    for (const path of ['/a', '/b', '/c', '/inner', '/a', '/a']) seen.push((await app.request(path)).status);
    assert.deepEqual(seen, [200, 500, 200, 200, 200, 429]);
    assert.match(errors[0].message, /new Policy\('5\/minute', \{ name: 'login' \}\)/);
  });

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
    const here = () => hono.rateLimit({ limiter, policy: NOTATION, key: () => 'all' });
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
