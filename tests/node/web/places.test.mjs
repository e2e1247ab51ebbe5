// A notation counts for the place where it is written, under a name that is the same in every process.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { placedKey } from 'tidegate/http';
import { get } from './client.mjs';
import { forEachAdapter, limiting } from './each_adapter.mjs';

const NOTATION = 'fixed-window 2/minute';
const CLIENT = '127.0.0.1';

/** The statuses of requests, one after the other. */
async function statuses(url, requests) {
  const seen = [];
  for (const [method, path] of requests) seen.push((await get(url + path, { method })).status);
  return seen;
}

forEachAdapter(({ name, serving }) => {
  // Handlers of `Request` do not know their route.
  if (name.startsWith('Web')) return;
  // The guard of Nest names the handler too.
  const handler = name.startsWith('Nest') ? '.handle' : '';

  test('two routes with one notation, and one object of options, count for themselves', async (t) => {
    const { limiter } = limiting();
    const options = { limiter, policy: NOTATION };
    const url = await serving(t, {
      limiter,
      routes: [
        ['/one', options],
        ['/other/:id', options],
      ],
    });
    const requests = ['/one', '/one', '/one', '/other/1', '/other/2', '/other/3'].map((path) => ['GET', path]);
    assert.deepEqual(await statuses(url, requests), [200, 200, 429, 200, 200, 429]);
    // `peek` and `clear` name the place by its pattern.
    assert.equal((await limiter.peek(NOTATION, `/one${handler} ${CLIENT}`)).remaining, 0);
    await limiter.clear(NOTATION, `/one${handler} ${CLIENT}`);
    assert.deepEqual(
      await statuses(url, [
        ['GET', '/one'],
        ['GET', '/other/1'],
      ]),
      [200, 429],
    );
  });

  test('the place has the same name in every process, whatever was made before', async (t) => {
    const { limiter } = limiting();
    const here = () => ({ limiter, policy: NOTATION });
    const first = await serving(t, {
      limiter,
      routes: [
        ['/a', here()],
        ['/b', here()],
      ],
    });
    const second = await serving(t, {
      limiter,
      routes: [
        ['/c', here()],
        ['/b', here()],
        ['/a', here()],
      ],
    });
    assert.deepEqual(await statuses(first, [['GET', '/b']]), [200]);
    assert.deepEqual(
      await statuses(second, [
        ['GET', '/a'],
        ['GET', '/b'],
        ['GET', '/b'],
      ]),
      [200, 200, 429],
    );
  });

  test('methods of one route share its budget, unless perMethod', async (t) => {
    const { limiter } = limiting();
    const url = await serving(t, {
      limiter,
      routes: [
        ['/shared', { limiter, policy: NOTATION }],
        ['/each', { limiter, policy: NOTATION, perMethod: true }],
      ],
    });
    const calls = (path) => ['GET', 'POST', 'GET', 'POST', 'HEAD'].map((method) => [method, path]);
    assert.deepEqual(await statuses(url, calls('/shared')), [200, 200, 429, 429, 429]);
    // The handler of GET answers HEAD, so it is no way to a second budget.
    assert.deepEqual(await statuses(url, [...calls('/each'), ['POST', '/each']]), [200, 200, 200, 200, 429, 429]);
    assert.equal((await limiter.peek(NOTATION, placedKey(`/each${handler}`, CLIENT, 'post'))).remaining, 0);
  });

  test('a named policy is one limit wherever it is used', async (t) => {
    const { limiter } = limiting({ login: NOTATION });
    const url = await serving(t, {
      limiter,
      routes: [
        ['/one', { limiter, policy: 'login' }],
        ['/other', { limiter, policy: 'login' }],
      ],
    });
    assert.deepEqual(
      await statuses(url, [
        ['GET', '/one'],
        ['GET', '/other'],
        ['GET', '/one'],
      ]),
      [200, 200, 429],
    );
    assert.equal((await limiter.peek('login', CLIENT)).remaining, 0);
  });

  test('a limit of the application is asked together with that of a route', async (t) => {
    const { limiter } = limiting({ all: 'fixed-window 3/minute' });
    const options = { limiter, policy: NOTATION };
    const layered = name.startsWith('Nest') || name.startsWith('Fastify');
    const own = layered ? options : { ...options, application: 'all' };
    const url = await serving(t, {
      limiter,
      limits: layered ? [{ limiter, application: 'all' }] : [],
      routes: [
        ['/one', own],
        ['/other', own],
      ],
    });
    assert.deepEqual(
      await statuses(url, [
        ['GET', '/one'],
        ['GET', '/one'],
        ['GET', '/one'],
      ]),
      [200, 200, 429],
    );
    // All or nothing: the refusal by the route's own limit has cost the application nothing.
    assert.equal((await limiter.peek('all', CLIENT)).remaining, 1);
    assert.deepEqual(
      await statuses(url, [
        ['GET', '/other'],
        ['GET', '/other'],
      ]),
      [200, 429],
    );
    const { headers } = await get(`${url}/other`);
    assert.match(headers['ratelimit-policy'], /"all";q=3;w=60, "fixed-window 2\/minute";q=2;w=60/);
  });
});
