// The `Store` interface of express-rate-limit 8, member by member, on Redis and in memory.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { Limiter, ManualClock } from 'tidegate';
import { TidegateStore } from 'tidegate/express-rate-limit';
import { Servers } from '../../servers/servers.mjs';
import { get, until } from './client.mjs';
import { listening } from './servers/listening.mjs';

const START = 1_704_067_200_000;
const [servers, postgres] = await Promise.all([Servers.start(), Servers.start('postgres')]);
after(() => Promise.all([servers.close(), postgres.close()]));

const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
after(() => rmSync(folder, { recursive: true }));

const stores = ['memory://', `file://${folder}/limits?max_bytes=4MB`, servers.url, `${postgres.url}?create=yes`];
for (const url of stores) {
  describe(url.split(':', 1)[0], () => {
    let prefixes = 0;

    /** Stores of `processes` processes on one server, and their clock. */
    function stores(t, { windowMs = 60_000, processes = 1, prefix = `test${++prefixes}:` } = {}) {
      const clock = new ManualClock(START);
      const all = Array.from({ length: processes }, () => {
        const limiter = new Limiter({ store: url, clock, timeoutMs: 10_000 });
        t.after(() => limiter.close());
        const store = new TidegateStore({ limiter, prefix });
        store.init({ windowMs });
        return store;
      });
      return { clock, store: all[0], all, prefix };
    }

    test('increment counts without a limit', async (t) => {
      const { store, clock } = stores(t);
      for (let hit = 1; hit <= 300; hit++) assert.equal((await store.increment('alice')).totalHits, hit);
      const { totalHits, resetTime } = await store.increment('bob');
      assert.equal(totalHits, 1);
      assert.equal(resetTime.getTime(), START + 60_000);
      clock.advance(59_999);
      assert.equal((await store.increment('bob')).totalHits, 2);
      clock.advance(1);
      assert.deepEqual(await store.increment('bob'), { totalHits: 1, resetTime: new Date(START + 120_000) });
    });

    test('simultaneous hits are all counted', async (t) => {
      const { store } = stores(t);
      const hits = await Promise.all(Array.from({ length: 200 }, () => store.increment('alice')));
      const counted = hits.map(({ totalHits }) => totalHits).sort((a, b) => a - b);
      assert.deepEqual(
        counted,
        Array.from({ length: 200 }, (_, index) => index + 1),
      );
    });

    test('decrement takes a hit back, never below zero', async (t) => {
      const { store, clock } = stores(t);
      await store.decrement('alice');
      assert.equal((await store.increment('alice')).totalHits, 1);
      await store.decrement('alice');
      await store.decrement('alice');
      await store.decrement('alice');
      assert.equal((await store.increment('alice')).totalHits, 1);
      clock.advance(60_000);
      // This is late, because the window is over.
      await store.decrement('alice');
      assert.equal((await store.increment('alice')).totalHits, 1);
    });

    test('get returns the count, and counts nothing', async (t) => {
      const { store, clock } = stores(t);
      assert.equal(await store.get('alice'), undefined);
      await store.increment('alice');
      const info = { totalHits: 1, resetTime: new Date(START + 60_000) };
      assert.deepEqual(await store.get('alice'), info);
      assert.deepEqual(await store.get('alice'), info);
      clock.advance(60_000);
      assert.equal(await store.get('alice'), undefined);
    });

    test('resetKey forgets one key', async (t) => {
      const { store } = stores(t);
      await store.increment('alice');
      await store.increment('bob');
      await store.resetKey('alice');
      assert.equal(await store.get('alice'), undefined);
      assert.equal((await store.get('bob')).totalHits, 1);
    });

    test('resetAll forgets all keys of its prefix, each time', async (t) => {
      const { store, clock } = stores(t);
      const other = stores(t).store;
      for (let round = 0; round < 5; round++) {
        assert.equal((await store.increment('alice')).totalHits, 1);
        assert.equal((await store.increment('alice')).totalHits, 2);
        await other.increment('alice');
        await store.resetAll();
        assert.equal(await store.get('alice'), undefined);
        clock.advance(40_000);
      }
      // When the resets themselves have expired, no older hit comes back.
      for (let second = 0; second < 200; second += 10) {
        clock.advance(10_000);
        assert.equal(await store.get('alice'), undefined);
      }
    });

    test('keys of different prefixes and windows are different', async (t) => {
      const { store } = stores(t);
      const { store: other } = stores(t);
      await store.increment('alice');
      assert.equal(await other.get('alice'), undefined);
    });

    test('a store works before init', async (t) => {
      const limiter = new Limiter({ store: url, timeoutMs: 10_000 });
      t.after(() => limiter.close());
      const store = new TidegateStore({ limiter, prefix: `test${++prefixes}:` });
      assert.equal((await store.increment('alice')).totalHits, 1);
    });

    test('shutdown leaves the limiter open', async (t) => {
      const { store } = stores(t);
      await store.shutdown();
      assert.equal((await store.increment('alice')).totalHits, 1);
    });

    test('express-rate-limit runs on it', async (t) => {
      // Without a manual clock, because express-rate-limit reads the real time.
      const client = new Limiter({ store: url, timeoutMs: 10_000 });
      t.after(() => client.close());
      const store = new TidegateStore({ limiter: client, prefix: `test${++prefixes}:` });
      const errors = [];
      const logger = { error: (error) => errors.push(error), warn: (error) => errors.push(error) };
      const limiter = rateLimit({
        windowMs: 60_000,
        limit: (request) => (request.path === '/paid' ? 4 : 2),
        standardHeaders: 'draft-8',
        skipFailedRequests: true,
        keyGenerator: () => 'alice',
        store,
        logger,
      });
      const app = express();
      app.use(limiter);
      app.get('/fails', (_request, response) => response.status(500).end());
      app.use((_request, response) => response.send('hello'));
      const server = await listening(app.listen(0, '127.0.0.1'));
      t.after(() => server.close());
      assert.equal((await get(`${server.url}/fails`)).status, 500);
      await until('the failed request is taken back', async () => (await limiter.getKey('alice')) === undefined);
      assert.equal((await get(server.url)).status, 200);
      assert.equal((await get(server.url)).status, 200);
      assert.equal((await get(server.url)).status, 429);
      await until('the refusal is taken back', async () => (await limiter.getKey('alice')).totalHits === 2);
      const paid = await get(`${server.url}/paid`);
      assert.equal(paid.status, 200);
      assert.match(paid.headers.ratelimit, /r=1; t=(60|59)/);
      await limiter.resetKey('alice');
      assert.equal((await get(server.url)).status, 200);
      assert.deepEqual(errors, []);
    });
  });
}

test('two processes count together, and resetAll of one holds for both', async (t) => {
  const clock = new ManualClock(START);
  const [one, other] = [0, 1].map(() => {
    const limiter = new Limiter({ store: servers.url, clock, timeoutMs: 10_000 });
    t.after(() => limiter.close());
    const store = new TidegateStore({ limiter, prefix: 'shared:' });
    store.init({ windowMs: 60_000 });
    return store;
  });
  assert.equal(one.localKeys, false);
  assert.equal(one.prefix, 'shared:');
  await one.increment('alice');
  assert.equal((await other.increment('alice')).totalHits, 2);
  await one.resetAll();
  // The other process does not know of the reset, and still does not use the old key.
  assert.equal((await other.increment('alice')).totalHits, 1);
  assert.equal((await one.get('alice')).totalHits, 1);
});

test('a limiter is an option that has to be there', () => {
  assert.throws(() => new TidegateStore({}), { code: 'config_invalid' });
});

test('express-rate-limit reports two stores of one limiter with the same prefix', async (t) => {
  const limiter = new Limiter();
  const errors = [];
  const logger = { error: (error) => errors.push(error.code), warn: (error) => errors.push(error.code) };
  const limited = (options) =>
    rateLimit({ windowMs: 60_000, limit: 9, logger, store: new TidegateStore({ limiter, ...options }) });
  const app = express();
  app.get('/different', limited({ prefix: 'all:' }), limited({ prefix: 'login:' }));
  app.get('/same', limited(), limited());
  app.use((_request, response) => response.send('hello'));
  const server = await listening(app.listen(0, '127.0.0.1'));
  t.after(() => server.close());
  await get(`${server.url}/different`);
  assert.deepEqual(errors, []);
  await get(`${server.url}/same`);
  assert.deepEqual(errors, ['ERR_ERL_DOUBLE_COUNT']);
});

test('a missing store is an error, for which passOnStoreError decides', async (t) => {
  for (const onStoreError of ['raise', 'closed']) {
    const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError });
    t.after(() => limiter.close());
    await assert.rejects(new TidegateStore({ limiter }).increment('alice'), { code: /^store_/ });
  }
  const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError: 'open' });
  t.after(() => limiter.close());
  assert.equal((await new TidegateStore({ limiter }).increment('alice')).totalHits, 1);
});
