// Features of some frameworks only: limits of a route, a handler or a controller.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import 'reflect-metadata';
import { Controller, Get, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import express5 from 'express';
import express4 from 'express4';
import Fastify from 'fastify';
import fastify4 from 'fastify4';
import { Limiter, ManualClock } from 'tidegate';
import * as expressAdapter from 'tidegate/express';
import * as fastify from 'tidegate/fastify';
import * as nest from 'tidegate/nest';
import { get } from './client.mjs';
import { listening } from './servers/listening.mjs';

const policies = { all: 'fixed-window 100/minute', login: 'fixed-window 5/minute' };
const limiting = () => new Limiter({ policies, clock: new ManualClock(1_704_067_200_000) });

/** The `RateLimit` field of a path's response. */
async function rateLimitOf(url, path) {
  const { status, headers } = await get(url + path);
  assert.ok(status === 200 || status === 429, `${path} is ${status}`);
  return headers.ratelimit ?? '';
}

for (const [version, express] of [
  [5, express5],
  [4, express4],
]) {
  describe(`Express ${version}`, () => {
    async function serving(t, app) {
      const server = await listening(app.listen(0, '127.0.0.1'));
      t.after(() => server.close());
      return server.url;
    }

    /** Responds with the policy that handlers see on the request. */
    const respondWithPolicy = (request, response) => {
      const { rateLimit } = request;
      response.json({ policy: rateLimit?.policy ?? rateLimit ?? null });
    };

    test('the Decision of a mounted application is seen in the outer one', async (t) => {
      const [app, inner] = [express(), express()];
      inner.use(expressAdapter.rateLimit({ limiter: limiting(), policy: 'login' }));
      app.use('/inner', inner);
      app.use(respondWithPolicy);
      const url = await serving(t, app);
      assert.equal((await get(`${url}/inner`)).body, '{"policy":"login"}');
      assert.equal((await get(url)).body, '{"policy":null}');
    });

    test('a request has the last Decision, and keeps what an application assigns', async (t) => {
      const app = express();
      const limiter = limiting();
      app.use(
        expressAdapter.rateLimit({ limiter, policy: 'all' }),
        expressAdapter.rateLimit({ limiter, policy: 'login' }),
      );
      app.get('/assigned', (request, _response, next) => {
        request.rateLimit = 'assigned';
        next();
      });
      app.use(respondWithPolicy);
      const url = await serving(t, app);
      assert.equal((await get(url)).body, '{"policy":"login"}');
      assert.equal((await get(`${url}/assigned`)).body, '{"policy":"assigned"}');
      assert.equal((await get(url)).body, '{"policy":"login"}');
    });

    test("a request that is not Node's gets its Decision too", async () => {
      const middleware = expressAdapter.rateLimit({ limiter: limiting(), policy: 'login' });
      const request = { method: 'GET', url: '/', headers: {}, socket: { remoteAddress: '127.0.0.1' } };
      const response = { setHeader() {} };
      await new Promise((resolve, reject) => {
        middleware(request, response, (error) => (error === undefined ? resolve() : reject(error)));
      });
      assert.equal(request.rateLimit.policy, 'login');
    });
  });
}

describe('Fastify', () => {
  async function serving(t, options, routes) {
    const app = Fastify({ forceCloseConnections: true });
    t.after(() => app.close());
    await app.register(fastify.rateLimit, options);
    for (const [path, rateLimit] of Object.entries(routes)) {
      app.get(path, { config: rateLimit === undefined ? {} : { rateLimit } }, async () => 'hello');
    }
    return app.listen({ host: '127.0.0.1', port: 0 });
  }

  test('the options of a route override those of the plugin', async (t) => {
    const limiter = limiting();
    const url = await serving(
      t,
      { limiter, policy: 'all' },
      {
        '/': undefined,
        '/login': { policy: 'login', cost: 2 },
        '/free': false,
        '/dear': { cost: 10 },
      },
    );
    assert.equal(await rateLimitOf(url, '/'), '"all";r=99;t=60');
    assert.equal(await rateLimitOf(url, '/login'), '"login";r=3;t=60');
    assert.equal(await rateLimitOf(url, '/free'), '');
    assert.equal(await rateLimitOf(url, '/dear'), '"all";r=89;t=60');
    const missing = await get(`${url}/missing`);
    assert.equal(missing.status, 404);
    assert.equal(missing.headers.ratelimit, '"all";r=88;t=60');
  });

  test('a notation of a route is a limit of that route', async (t) => {
    const limiter = limiting();
    const here = () => ({ policy: 'fixed-window 2/minute' });
    const url = await serving(
      t,
      { limiter },
      { '/': undefined, '/one': here(), '/other': here(), '/named': { policy: 'login' } },
    );
    assert.equal(await rateLimitOf(url, '/'), '');
    assert.match(await rateLimitOf(url, '/one'), /r=1;/);
    assert.match(await rateLimitOf(url, '/one'), /r=0;/);
    assert.match(await rateLimitOf(url, '/other'), /r=1;/);
    assert.equal(await rateLimitOf(url, '/named'), '"login";r=4;t=60');
    assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 4);
  });

  test('a plugin that limits no route says so once', async () => {
    for (const Framework of [Fastify, fastify4]) {
      const warnings = async (options, declare = () => {}) => {
        const said = [];
        const listen = (warning) => said.push(warning);
        process.on('warning', listen);
        const app = Framework();
        declare(app, false);
        await app.register(fastify.rateLimit, { limiter: limiting(), ...options });
        declare(app, true);
        await app.ready();
        await app.inject('/');
        await new Promise((resolve) => setImmediate(resolve));
        process.off('warning', listen);
        await app.close();
        return said.filter(({ name }) => name === 'TidegateWarning').map(({ message }) => message);
      };
      const hello = async () => 'hello';
      const [warning, ...more] = await warnings({}, (app, after) => after && app.get('/', hello));
      assert.match(warning, /the plugin of tidegate\/fastify limits nothing: .*rateLimit: '5\/minute'/);
      assert.deepEqual(more, []);
      const config = { rateLimit: 'login' };
      assert.deepEqual(await warnings({}, (app, after) => after && app.get('/', { config }, hello)), []);
      assert.deepEqual(await warnings({}, (app, after) => after || app.get('/', { config }, hello)), []);
      assert.deepEqual(await warnings({ policy: 'all' }), []);
      assert.deepEqual(await warnings({ enabled: false }), []);
    }
  });

  test('wrong options of a route are an error when it is declared', async () => {
    const app = Fastify();
    await app.register(fastify.rateLimit, { limiter: limiting() });
    const declare = () => app.get('/', { config: { rateLimit: { policy: 'logn' } } }, async () => 'hello');
    assert.throws(declare, { code: 'policy_unknown' });
    await assert.rejects(async () => Fastify().register(fastify.rateLimit, { limiter: limiting(), hook: 'onSend' }), {
      code: 'config_invalid',
    });
  });
});

describe('Nest', () => {
  test('a guard that limits no handler says so once', async (t) => {
    const said = [];
    const listen = (warning) => warning.name === 'TidegateWarning' && said.push(warning.message);
    process.on('warning', listen);
    t.after(() => process.off('warning', listen));
    class Bare {
      index() {
        return 'hello';
      }
    }
    Controller()(Bare);
    Get()(Bare.prototype, 'index', Object.getOwnPropertyDescriptor(Bare.prototype, 'index'));
    for (const options of [{}, { policy: 'all' }]) {
      class Application {}
      const imports = [nest.RateLimitModule.forRoot({ limiter: limiting(), ...options })];
      Module({ controllers: [Bare], imports })(Application);
      const app = await NestFactory.create(Application, { logger: false });
      await app.init();
      await app.close();
    }
    // A guard that an application makes itself warns with its first request.
    const guard = new nest.RateLimitGuard({ limiter: limiting() });
    const context = { getHandler: () => Bare.prototype.index, getClass: () => Bare };
    for (let request = 0; request < 3; request++) assert.equal(await guard.canActivate(context), true);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(said.length, 2);
    assert.match(said[0], /the guard of tidegate\/nest limits nothing: .*@RateLimit\('5\/minute'\)/);
  });

  async function serving(t, imports, guards = []) {
    class One {
      index() {}
      login() {}
      free() {}
      here() {}
      other() {}
    }
    const decorate = (target, name, ...decorators) => {
      const descriptor = Object.getOwnPropertyDescriptor(target.prototype, name);
      for (const decorator of decorators) decorator(target.prototype, name, descriptor);
    };
    Controller()(One);
    decorate(One, 'index', Get());
    decorate(One, 'login', Get('login'), nest.RateLimit({ policy: 'login', cost: 2 }));
    decorate(One, 'free', Get('free'), nest.SkipRateLimit());
    decorate(One, 'here', Get('here'), nest.RateLimit('fixed-window 2/minute'));
    decorate(One, 'other', Get('other'), nest.RateLimit('fixed-window 2/minute'));
    class Whole {
      index() {}
      free() {}
    }
    Controller('whole')(Whole);
    nest.RateLimit('login')(Whole);
    decorate(Whole, 'index', Get());
    decorate(Whole, 'free', Get('free'), nest.RateLimit(false));
    class Application {}
    Module({ controllers: [One, Whole], imports })(Application);
    const app = await NestFactory.create(Application, { logger: false, forceCloseConnections: true });
    t.after(() => app.close());
    app.useGlobalGuards(...guards);
    await app.listen(0, '127.0.0.1');
    return (await app.getUrl()).replace('[::1]', '127.0.0.1');
  }

  for (const way of ['a module', 'a guard']) {
    test(`a decorator overrides the options of ${way}`, async (t) => {
      const options = { limiter: limiting(), policy: 'all' };
      const url =
        way === 'a guard'
          ? await serving(t, [], [new nest.RateLimitGuard(options)])
          : await serving(t, [nest.RateLimitModule.forRoot(options)]);
      assert.equal(await rateLimitOf(url, '/'), '"all";r=99;t=60');
      assert.equal(await rateLimitOf(url, '/login'), '"login";r=3;t=60');
      assert.equal(await rateLimitOf(url, '/free'), '');
      assert.match(await rateLimitOf(url, '/here'), /r=1;/);
      assert.match(await rateLimitOf(url, '/here'), /r=0;/);
      assert.match(await rateLimitOf(url, '/other'), /r=1;/);
      assert.equal(await rateLimitOf(url, '/whole'), '"login";r=2;t=60');
      assert.equal(await rateLimitOf(url, '/whole/free'), '');
    });
  }
});
