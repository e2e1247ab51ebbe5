// The stores for @fastify/rate-limit, @nestjs/throttler and express-rate-limit 7, with the packages themselves.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import 'reflect-metadata';
import rateLimit from '@fastify/rate-limit';
import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { SkipThrottle, ThrottlerGuard, ThrottlerModule, ThrottlerStorageService } from '@nestjs/throttler';
import express from 'express';
import { rateLimit as expressRateLimit7 } from 'express-rate-limit-7';
import fastify from 'fastify';
import { Limiter, ManualClock } from 'tidegate';
import { TidegateStore as ExpressStore } from 'tidegate/express-rate-limit';
import { TidegateStore } from 'tidegate/fastify-rate-limit';
import { TidegateStorage } from 'tidegate/nestjs-throttler';
import { Servers } from '../../servers/servers.mjs';
import { get } from './client.mjs';
import { listening } from './servers/listening.mjs';

const [servers, postgres] = await Promise.all([Servers.start(), Servers.start('postgres')]);
after(() => Promise.all([servers.close(), postgres.close()]));

let prefixes = 0;

const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
after(() => rmSync(folder, { recursive: true }));

const stores = ['memory://', `file://${folder}/limits?max_bytes=4MB`, servers.url, `${postgres.url}?create=yes`];
for (const url of stores) {
  describe(url.split(':', 1)[0], () => {
    /** A limiter with a clock, and a new prefix. */
    function limiting(t) {
      const clock = new ManualClock(1_704_067_200_000);
      const limiter = new Limiter({ store: url, clock, denyCacheMs: 0, timeoutMs: 10_000 });
      t.after(() => limiter.close());
      return { clock, limiter, prefix: `peer${++prefixes}:` };
    }

    test('@fastify/rate-limit: each route counts for itself, and the window ends', async (t) => {
      const { clock, limiter, prefix } = limiting(t);
      const app = fastify();
      t.after(() => app.close());
      await app.register(rateLimit, { max: 2, timeWindow: 60_000, store: TidegateStore({ limiter, prefix }) });
      app.get('/', async () => 'hello');
      app.get('/own', { config: { rateLimit: { max: 1, timeWindow: 1000 } } }, async () => 'hello');
      const statuses = async (...paths) => {
        const seen = [];
        for (const path of paths) seen.push((await app.inject(path)).statusCode);
        return seen;
      };
      assert.deepEqual(await statuses('/', '/', '/', '/own', '/own'), [200, 200, 429, 200, 429]);
      const { headers } = await app.inject('/');
      assert.equal(headers['x-ratelimit-remaining'], '0');
      assert.equal(headers['retry-after'], '60');
      clock.advance(1000);
      assert.deepEqual(await statuses('/own', '/'), [200, 429]);
      clock.advance(59_000);
      assert.deepEqual(await statuses('/'), [200]);
    });

    test('@fastify/rate-limit: continueExceeding, and a look without a hit', async (t) => {
      const { clock, limiter, prefix } = limiting(t);
      const app = fastify();
      t.after(() => app.close());
      const store = TidegateStore({ limiter, prefix });
      await app.register(rateLimit, { max: 1, timeWindow: 60_000, continueExceeding: true, store });
      const look = app.createRateLimit();
      app.get('/', async () => 'hello');
      app.get('/look', { config: { rateLimit: false } }, async (request) => look(request, { increment: false }));
      const status = async () => (await app.inject('/')).statusCode;
      assert.deepEqual([await status(), await status()], [200, 429]);
      clock.advance(40_000);
      assert.equal(await status(), 429);
      // A minute after the first request, but not after the last one.
      clock.advance(40_000);
      assert.equal(await status(), 429);
      assert.equal((await app.inject('/look')).json().isExceeded, true);
      clock.advance(60_000);
      assert.equal((await app.inject('/look')).json().remaining, 1);
      assert.equal(await status(), 200);
    });

    test('@nestjs/throttler answers as with its own storage', async (t) => {
      const { clock, limiter } = limiting(t);
      const cases = [
        { ttl: 60_000, limit: 2, blockDuration: 60_000 },
        { ttl: 60_000, limit: 2, blockDuration: 10_000 },
        { ttl: 10_000, limit: 3, blockDuration: 60_000 },
        { ttl: 10_000, limit: 1, blockDuration: 0 },
      ];
      t.mock.timers.enable({ apis: ['Date'], now: clock.now() });
      for (const { ttl, limit, blockDuration } of cases) {
        const own = new ThrottlerStorageService();
        t.after(() => own.onApplicationShutdown());
        const storage = new TidegateStorage({ limiter, prefix: `peer${++prefixes}:` });
        for (const wait of [0, 0, 0, 0, 4000, 7000, 0, 0, 30_000, 0, 0, 61_000, 0]) {
          clock.advance(wait);
          t.mock.timers.tick(wait);
          const expected = await own.increment('k', ttl, limit, blockDuration, 'default');
          const { totalHits, isBlocked, timeToBlockExpire } = await storage.increment(
            'k',
            ttl,
            limit,
            blockDuration,
            'default',
          );
          const place = `${ttl}/${limit}/${blockDuration} at ${clock.now()}`;
          assert.equal(isBlocked, expected.isBlocked, place);
          if (isBlocked) assert.equal(timeToBlockExpire, expected.timeToBlockExpire, place);
          else assert.equal(totalHits, expected.totalHits, place);
        }
      }
    });

    test('@nestjs/throttler runs on it, with two limits of which one is skipped', async (t) => {
      const { limiter, prefix } = limiting(t);
      class Cats {
        index() {
          return 'cats';
        }
        free() {
          return 'free';
        }
      }
      const decorate = (method, ...decorators) => {
        const descriptor = Object.getOwnPropertyDescriptor(Cats.prototype, method);
        for (const decorator of decorators) decorator(Cats.prototype, method, descriptor);
      };
      Controller()(Cats);
      decorate('index', Get());
      decorate('free', Get('free'), SkipThrottle({ short: true }));
      const throttlers = [
        { name: 'short', ttl: 1000, limit: 1 },
        { name: 'long', ttl: 60_000, limit: 3 },
      ];
      class Application {}
      Module({
        imports: [ThrottlerModule.forRoot({ throttlers, storage: new TidegateStorage({ limiter, prefix }) })],
        controllers: [Cats],
        providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
      })(Application);
      const app = await NestFactory.create(Application, { logger: false, forceCloseConnections: true });
      t.after(() => app.close());
      await app.listen(0, '127.0.0.1');
      const base = `http://127.0.0.1:${app.getHttpServer().address().port}`;
      const seen = [];
      for (const path of ['/', '/', '/free', '/free', '/free', '/free']) seen.push((await get(base + path)).status);
      assert.deepEqual(seen, [200, 429, 200, 200, 200, 429]);
    });

    test('express-rate-limit 7 runs on it', async (t) => {
      const { prefix } = limiting(t);
      const limiter = new Limiter({ store: url, timeoutMs: 10_000 });
      t.after(() => limiter.close());
      const app = express();
      const validate = { trustProxy: false };
      app.use(
        expressRateLimit7({ windowMs: 60_000, limit: 2, store: new ExpressStore({ limiter, prefix }), validate }),
      );
      app.use((_request, response) => response.send('hello'));
      const server = await listening(app.listen(0, '127.0.0.1'));
      t.after(() => server.close());
      const seen = [];
      for (let times = 0; times < 3; times++) seen.push((await get(server.url)).status);
      assert.deepEqual(seen, [200, 200, 429]);
    });
  });
}

test('options that do not exist, and those of the plugin that cannot be kept, are errors', async () => {
  const limiter = new Limiter();
  for (const make of [
    (options) => new ExpressStore(options),
    (options) => TidegateStore(options),
    (options) => new TidegateStorage(options),
  ]) {
    assert.throws(() => make({ limiter, prefx: 'a' }), { code: 'config_invalid', message: /did you mean prefix\?/ });
    for (const wrong of [{}, null, undefined, { limiter: {} }, { limiter, prefix: 5 }, { limiter, prefix: null }]) {
      assert.throws(() => make(wrong), { code: 'config_invalid' });
    }
  }
  const register = (options) => fastify().register(rateLimit, { ...options, store: TidegateStore({ limiter }) });
  await assert.rejects(async () => register({ exponentialBackoff: true }), { code: 'config_invalid' });
  await assert.rejects(async () => register({ continueExceeding: true, ban: 3 }), { code: 'config_invalid' });
});

test('a store that is missing is an error, for which the packages decide', async (t) => {
  const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError: 'closed' });
  t.after(() => limiter.close());
  await assert.rejects(new TidegateStorage({ limiter }).increment('k', 1000, 1, 1000, 'default'), { code: /^store_/ });
  const app = fastify();
  t.after(() => app.close());
  await app.register(rateLimit, { max: 1, skipOnError: true, store: TidegateStore({ limiter }) });
  app.get('/', async () => 'hello');
  assert.equal((await app.inject('/')).statusCode, 200);
});

test('limits with units are an error, and no other number takes their place', async (t) => {
  const limiter = new Limiter();
  t.after(() => limiter.close());
  const units = { code: 'config_invalid', message: /a number of hits.*not "100 tokens\/minute".*count no units/ };
  const limit = '100 tokens/minute';
  // express-rate-limit would compare the count with the text, which is never exceeded.
  assert.throws(() => expressRateLimit7({ windowMs: 60_000, limit, store: new ExpressStore({ limiter }) }), units);
  assert.throws(() => new ExpressStore({ limiter }).init({ windowMs: limit }), units);
  new ExpressStore({ limiter }).init({ windowMs: 60_000, limit: () => 5 });
  const Store = TidegateStore({ limiter });
  const counted = (...given) =>
    new Promise((resolve, reject) => {
      new Store({}).incr('k', (error, hits) => (error ? reject(error) : resolve(hits)), ...given);
    });
  await assert.rejects(counted(60_000, limit), units);
  await assert.rejects(counted(limit, 5), units);
  assert.equal((await counted(60_000, 5)).current, 1);
  const storage = new TidegateStorage({ limiter });
  await assert.rejects(storage.increment('k', 60_000, limit, 0, 'default'), units);
  await assert.rejects(storage.increment('k', limit, 5, 0, 'default'), units);
  assert.equal((await storage.increment('k', 60_000, 5, 0, 'default')).totalHits, 1);
  for (const option of ['policy', 'cost']) {
    for (const make of [
      (options) => new ExpressStore(options),
      TidegateStore,
      (options) => new TidegateStorage(options),
    ]) {
      assert.throws(() => make({ limiter, [option]: limit }), {
        code: 'config_invalid',
        message: new RegExp(`no option ${option}`),
      });
    }
  }
});
