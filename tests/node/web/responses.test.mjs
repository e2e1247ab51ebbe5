// The responses of every adapter, over real HTTP.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter } from 'tidegate';
import { get } from './client.mjs';
import { forEachAdapter, items, limiting, START } from './each_adapter.mjs';

forEachAdapter(({ name, serving }) => {
  test('exactly the limit is admitted, and a refusal is a problem', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 3/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
    const answers = await Promise.all(Array.from({ length: 10 }, () => get(url)));
    const admitted = answers.filter(({ status, body }) => status === 200 && body === 'hello');
    assert.deepEqual(
      admitted.map(({ headers }) => headers['cache-control']),
      [undefined, undefined, undefined],
    );
    const refusals = answers.filter(({ status }) => status === 429);
    assert.equal(refusals.length, 7);
    for (const { headers, body } of refusals) {
      assert.equal(headers['content-type'], 'application/problem+json');
      assert.equal(headers['retry-after'], '60');
      assert.equal(headers['cache-control'], 'no-store');
      assert.deepEqual(JSON.parse(body), {
        type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
        title: 'Request cannot be satisfied as assigned quota has been exceeded',
        status: 429,
        detail: 'Try again in 60 seconds.',
        'violated-policies': ['login'],
      });
    }
  });

  test('every response announces the limit', async (t) => {
    const { limiter } = limiting({ login: 'gcra 20/minute' });
    const handler = async ({ url }) => {
      if (url === '/error') throw new Error('on purpose');
      return { status: url === '/missing' ? 404 : 200, body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, policy: 'login' }], handler });
    const expected = [
      ['/', 200, 19, 3],
      ['/missing', 404, 18, 6],
      ['/error', 500, 17, 9],
    ];
    // The host makes the response of a handler that throws.
    if (name.startsWith('Web')) expected.pop();
    for (const [path, wanted, left, reset] of expected) {
      const { status, headers } = await get(url + path);
      assert.equal(status, wanted);
      assert.deepEqual(items(headers['ratelimit-policy']), { login: { q: 20, w: 60 } });
      assert.deepEqual(items(headers['ratelimit']), { login: { r: left, t: 3 } });
      assert.equal(headers['x-ratelimit-limit'], '20');
      assert.equal(headers['x-ratelimit-remaining'], String(left));
      assert.equal(headers['x-ratelimit-reset'], String(START / 1000 + reset));
      assert.equal(headers['retry-after'], undefined);
    }
  });

  test('the wait of a refusal is exact', async (t) => {
    const { limiter, clock } = limiting({ login: 'sliding-log 2/minute; fixed-window 5/hour' });
    const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
    await get(url);
    clock.advance(10_500);
    await get(url);
    const { status, headers } = await get(url);
    assert.equal(status, 429);
    const wait = Number(headers['retry-after']);
    assert.equal(wait, 50);
    assert.equal(items(headers['ratelimit'])['login-1'].t, wait);
    clock.advance((wait - 1) * 1000);
    assert.equal((await get(url)).status, 429);
    clock.advance(1000);
    assert.equal((await get(url)).status, 200);
  });

  test('a cost that never fits is refused without Retry-After', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: 'login', cost: 6 }] });
    const { status, headers, body } = await get(url);
    assert.equal(status, 429);
    assert.equal(headers['retry-after'], undefined);
    assert.match(JSON.parse(body).detail, /more than is ever allowed/);
  });

  test('the option headers chooses the fields', async (t) => {
    const of = {
      both: ['ratelimit', 'ratelimit-policy', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'],
      ietf: ['ratelimit', 'ratelimit-policy'],
      'ietf-10': ['ratelimit', 'ratelimit-policy'],
      'ietf-11': ['ratelimit', 'ratelimit-policy'],
      legacy: ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'],
      off: [],
    };
    for (const [choice, fields] of Object.entries(of)) {
      const { limiter } = limiting({ login: '1/minute' });
      const url = await serving(t, { limits: [{ limiter, policy: 'login', headers: choice }] });
      const fieldsSet = async () =>
        Object.keys((await get(url)).headers).filter((field) => field.includes('rate') || field === 'retry-after');
      assert.deepEqual((await fieldsSet()).sort(), fields);
      assert.deepEqual((await fieldsSet()).sort(), [...fields, 'retry-after'].sort());
    }
  });

  test('a missing store is 503, not 429', async (t) => {
    for (const onStoreError of ['raise', 'closed']) {
      // No server listens on port 1.
      const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError, policies: { login: '1/minute' } });
      t.after(() => limiter.close());
      const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
      const { status, headers, body } = await get(url);
      assert.equal(status, 503, onStoreError);
      assert.equal(headers['retry-after'], '1');
      assert.equal(headers['cache-control'], 'no-store');
      assert.equal(headers['content-type'], 'application/problem+json');
      assert.equal(JSON.parse(body).type, 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity');
      assert.equal(headers['ratelimit'], undefined);
    }
  });

  test('the Decision is on the request', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const decisions = [];
    const handler = async ({ decision }) => {
      decisions.push(decision);
      // The cost is known only after the work.
      await limiter.settle(decision, 4);
      return { body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, policy: 'login' }], handler });
    await get(url);
    assert.equal(decisions[0].policy, 'login');
    assert.equal(decisions[0].key, '127.0.0.1');
    assert.equal(decisions[0].remaining, 4);
    assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 1);
  });
});
