// Holds of every adapter, over real HTTP.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { get, open, send, settled, until } from './client.mjs';
import { forEachAdapter, items, limiting } from './each_adapter.mjs';

/** A body that sends its second half after `finish`. */
function halves() {
  const { promise, resolve } = resolvers();
  async function* body() {
    yield 'first ';
    await promise;
    yield 'second';
  }
  return { body: Readable.from(body(), { objectMode: false }), finish: resolve };
}

function resolvers() {
  const made = {};
  made.promise = new Promise((resolve) => {
    made.resolve = resolve;
  });
  return made;
}

const policy = { policy: 'exports', key: () => 'all' };

/** True if that many units are free. */
const free = (limiter, units) => async () => (await limiter.peek('exports', 'all')).limits[0].remaining === units;

forEachAdapter(({ name, serving, failing, deserted }) => {
  test('a hold lasts as long as the response', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1; 100/minute' });
    const { body, finish } = halves();
    const handler = async ({ url }) => ({ body: url === '/stream' ? body : 'hello' });
    const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
    const answer = await open(`${url}/stream`);
    assert.equal(answer.statusCode, 200);
    assert.deepEqual(items(answer.headers['ratelimit-policy']), {
      'exports-1': { q: 1, qu: 'concurrent-requests' },
      'exports-2': { q: 100, w: 60 },
    });
    await new Promise((resolve) => answer.once('data', resolve));
    // The first bytes are there, the last are not.
    assert.equal((await get(url)).status, 429);
    finish();
    for await (const _ of answer);
    await until('the hold is given back', free(limiter, 1));
    assert.equal((await get(url)).status, 200);
    await until('the next hold is given back', free(limiter, 1));
  });

  test('a hold ends when the client disconnects', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1' });
    const { body } = halves();
    const handler = async () => ({ body });
    const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
    const answer = await open(url);
    await new Promise((resolve) => answer.once('data', resolve));
    assert.equal((await limiter.peek('exports', 'all')).remaining, 0);
    answer.destroy();
    await until('the hold is given back', free(limiter, 1));
  });

  test('a hold ends when the client aborts before the response', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1' });
    const began = resolvers();
    const handler = async () => {
      began.resolve();
      return new Promise(() => {});
    };
    const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
    const sent = send(url);
    await began.promise;
    assert.equal((await limiter.peek('exports', 'all')).remaining, 0);
    sent.destroy();
    await until('the hold is given back', free(limiter, 1));
  });

  test('no handler starts for a client that left while its admission waited', async (t) => {
    const clients = 3;
    const { limiter } = limiting({ exports: `concurrency ${clients}; fixed-window 100/minute` });
    const [came, gone] = [resolvers(), resolvers()];
    let waiting = 0;
    const key = async () => {
      if (++waiting === clients) came.resolve();
      await gone.promise;
      return 'all';
    };
    let handlers = 0;
    const handler = async () => {
      handlers++;
      return { body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, policy: 'exports', key }], handler });
    const sent = Array.from({ length: clients }, () => send(url));
    await came.promise;
    for (const one of sent) one.destroy();
    await deserted(url);
    gone.resolve();
    const left = async () => (await limiter.peek('exports', 'all')).limits.map(({ remaining }) => remaining);
    await until('all were admitted', async () => (await left())[1] === 100 - clients);
    await until('their holds are given back', free(limiter, clients));
    await settled();
    assert.equal(handlers, 0);
    assert.equal((await get(url)).status, 200);
    assert.equal(handlers, 1);
  });

  test('no handler starts for a client that left while it was delayed', async (t) => {
    const { limiter } = limiting({ paced: 'leaky-bucket 1/s burst 5' });
    const urls = [];
    const handler = async (call) => {
      urls.push(call.url);
      return { body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, policy: 'paced', key: () => 'all' }], handler });
    assert.equal((await get(`${url}/first`)).status, 200);
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const sent = send(`${url}/second`);
    const queued = async () => (await limiter.peek('paced', 'all')).remaining === 3;
    await until('the second one is admitted', queued);
    sent.destroy();
    await deserted(url);
    t.mock.timers.tick(1000);
    await settled();
    assert.deepEqual(urls, ['/first']);
  });

  const seesHandlers = /Koa|Hono|Web|^Fastify/.test(name);
  test(`holdUntil: 'handler' is ${seesHandlers ? 'the end of the handler' : 'an error with the way out'}`, async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1' });
    const events = [];
    const settle = () => {
      events.push('settle');
    };
    const options = { limiter, ...policy, holdUntil: 'handler', settle };
    if (!seesHandlers) {
      const error = await failing(t, { limits: [options] });
      assert.equal(error.code, 'config_invalid');
      assert.match(error.message, /holdUntil .* limiter\.hold/);
      return;
    }
    const [began, work] = [resolvers(), resolvers()];
    const handler = async (call) => {
      if (call.url !== '/work') return { body: 'hello' };
      began.resolve();
      await work.promise;
      events.push('handler');
      if (call.method === 'DELETE') throw new Error('on purpose');
      return { body: 'hello' };
    };
    const url = await serving(t, { limits: [options], routes: [], handler });
    const sent = send(`${url}/work`);
    await began.promise;
    sent.destroy();
    await deserted(url);
    assert.equal((await get(url)).status, 429);
    work.resolve();
    await until('the hold is given back', free(limiter, 1));
    await until('the request is settled', async () => events.length === 2);
    assert.deepEqual(events, ['handler', 'settle']);
    assert.equal((await get(url)).status, 200);
    await until('the hold of a usual request is given back', free(limiter, 1));
    assert.equal((await get(`${url}/work`, { method: 'DELETE' })).status, 500);
    await until('the hold of a handler that throws is given back', free(limiter, 1));
  });

  test('a hold ends with a response without a body, and with an error', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1' });
    const handler = async ({ url }) => {
      if (url === '/error') throw new Error('on purpose');
      return url === '/304' ? { status: 304, body: '' } : { body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
    for (const [path, method, status] of [
      ['/304', 'GET', 304],
      ['/', 'HEAD', 200],
      ['/error', 'GET', 500],
    ]) {
      assert.equal((await get(url + path, { method })).status, status);
      await until(`${method} ${path} gives its hold back`, free(limiter, 1));
    }
  });

  test('holds are given back when another policy refuses', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 5', login: '1/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: [policy, 'login'] }] });
    assert.equal((await get(url)).status, 200);
    const refused = await get(url);
    assert.equal(refused.status, 429);
    assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login']);
    await until('both are given back', free(limiter, 5));
  });

  test('a hold without room charges no other policy', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1', login: '5/minute' });
    await limiter.hold('exports', 'all');
    const url = await serving(t, { limits: [{ limiter, policy: ['login', policy] }] });
    assert.equal((await get(url)).status, 429);
    assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 5);
  });
});
