// Holds of every adapter, over real HTTP.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { get, open, send, until } from './client.mjs';
import { forEachAdapter, items, limiting } from './each_adapter.mjs';

/** A body whose second half is sent after `finish`. */
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

const policy = { policy: 'exports', key: 'all' };

/** Whether that many units are free. */
const free = (limiter, units) => async () => (await limiter.peek('exports', 'all')).limits[0].remaining === units;

forEachAdapter(({ serving }) => {
  test('a hold lasts as long as the response', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 1; 100/minute' });
    const { body, finish } = halves();
    const handler = async ({ url }) => ({ body: url === '/stream' ? body : 'hello' });
    const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
    const answer = await open(`${url}/stream`);
    assert.equal(answer.statusCode, 200);
    assert.deepEqual(items(answer.headers['ratelimit-policy']), {
      exports: { q: 1, qu: 'concurrent-requests' },
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
