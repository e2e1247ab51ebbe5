// The options of every adapter, over real HTTP.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, Policy } from 'tidegate';
import { get, until } from './client.mjs';
import { forEachAdapter, items, limiting, pathOf } from './each_adapter.mjs';

forEachAdapter(({ plainDenials, serving }) => {
  test('skip, methods and cost decide which requests are charged, and how much', async (t) => {
    const { limiter } = limiting({ login: '10/minute' });
    const left = async () => (await limiter.peek('login', 'all')).remaining;
    const url = await serving(t, {
      limits: [
        {
          limiter,
          policy: 'login',
          key: () => 'all',
          methods: ['POST', 'put'],
          skip: async (request) => pathOf(request) === '/health',
          cost: (request) => (pathOf(request) === '/dear' ? 4 : 1),
        },
      ],
    });
    const answer = await get(url);
    assert.equal(answer.headers['ratelimit'], undefined);
    assert.equal((await get(url, { method: 'HEAD' })).status, 200);
    assert.equal((await get(`${url}/health`, { method: 'POST' })).headers['ratelimit'], undefined);
    assert.equal(await left(), 10);
    await get(url, { method: 'POST' });
    assert.equal(await left(), 9);
    await get(`${url}/dear`, { method: 'PUT' });
    assert.equal(await left(), 5);
  });

  test('several policies are checked together, each with its own key', async (t) => {
    const { limiter } = limiting({ client: '3/minute', service: '2/minute' });
    const url = await serving(t, {
      limits: [{ limiter, policy: ['client', { policy: 'service', key: () => 'all' }] }],
    });
    const first = await get(url);
    assert.deepEqual(items(first.headers['ratelimit-policy']), { client: { q: 3, w: 60 }, service: { q: 2, w: 60 } });
    assert.equal(first.headers['x-ratelimit-limit'], '2');
    await get(url);
    const refused = await get(url);
    assert.equal(refused.status, 429);
    assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['service']);
    // All or nothing: the refusal cost the client nothing.
    assert.equal((await limiter.peek('client', '127.0.0.1')).remaining, 1);
  });

  test('a policy may depend on the request', async (t) => {
    const { limiter } = limiting({ free: '1/minute', paid: '5/minute' });
    const policy = async (request) => (pathOf(request) === '/paid' ? 'paid' : new Policy('2/minute'));
    const url = await serving(t, { limits: [{ limiter, policy }] });
    assert.equal((await get(`${url}/paid`)).headers['x-ratelimit-limit'], '5');
    assert.equal((await get(url)).headers['x-ratelimit-limit'], '2');
  });

  test('two middleware announce their limits together', async (t) => {
    const { limiter } = limiting({ service: 'fixed-window 5/minute', login: 'fixed-window 2/minute' });
    const url = await serving(t, {
      limits: [
        { limiter, policy: 'service' },
        { limiter, policy: 'login' },
      ],
    });
    const { headers } = await get(url);
    assert.deepEqual(items(headers['ratelimit']), { service: { r: 4, t: 60 }, login: { r: 1, t: 60 } });
    assert.equal(headers['x-ratelimit-limit'], '2');
    await get(url);
    const refused = await get(url);
    assert.equal(refused.status, 429);
    assert.deepEqual(items(refused.headers['ratelimit-policy']), {
      service: { q: 5, w: 60 },
      login: { q: 2, w: 60 },
    });
    assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login']);
  });

  test('onDenied may return the body, or nothing', async (t) => {
    for (const [returned, expected] of [
      [{ sorry: true }, '{"sorry":true}'],
      [undefined, /^\{"type":/],
    ]) {
      const { limiter } = limiting({ login: 'fixed-window 1/minute' });
      const calls = [];
      const onDenied = (request, decision, response) => {
        calls.push([pathOf(request), decision.policy, response !== undefined]);
        return returned;
      };
      const url = await serving(t, { limits: [{ limiter, policy: 'login', onDenied }] });
      await get(url);
      const { status, headers, body } = await get(`${url}/again`);
      assert.equal(status, 429);
      assert.equal(headers['retry-after'], '60');
      if (typeof expected === 'string') assert.equal(body, expected);
      else assert.match(body, expected);
      assert.deepEqual(calls, [['/again', 'login', true]]);
    }
  });

  test('what onDenied answers without a status is a refusal', async (t) => {
    for (const onDenied of plainDenials) {
      for (const [store, expected] of [
        ['memory://', 429],
        ['redis://127.0.0.1:1/0', 503],
      ]) {
        const limiter = new Limiter({ policies: { none: '0/minute' }, store, onStoreError: 'closed' });
        t.after(() => limiter.close());
        const url = await serving(t, { limits: [{ limiter, policy: 'none', onDenied }] });
        const { status, headers, body } = await get(url);
        assert.deepEqual([status, body], [expected, '{"slow":"down"}'], String(onDenied));
        assert.ok(headers['ratelimit-policy'] !== undefined);
      }
    }
  });

  test('a body names a policy as the fields do', async (t) => {
    for (const name of ['ü', 'a"b\\c', '100%\n']) {
      for (const [store, expected] of [
        ['memory://', 429],
        ['redis://127.0.0.1:1/0', 503],
      ]) {
        const limiter = new Limiter({ policies: { [name]: '0/minute; 5/s' }, store, onStoreError: 'raise' });
        t.after(() => limiter.close());
        const url = await serving(t, { limits: [{ limiter, policy: name }] });
        const { status, headers, body } = await get(url);
        const names = Object.keys(items(headers['ratelimit-policy']));
        assert.equal(status, expected);
        assert.deepEqual(JSON.parse(body)['violated-policies'], status === 429 ? names.slice(0, 1) : names);
      }
    }
  });

  test('refundWhen gives back what was consumed', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const left = async () => (await limiter.peek('login', '127.0.0.1')).remaining;
    const handler = async ({ url }) => ({ status: Number(url.slice(1)), body: '' });
    const refundWhen = async (response) => (response.statusCode ?? response.status) === 304;
    const url = await serving(t, { limits: [{ limiter, policy: 'login', cost: 2, refundWhen }], handler });
    await get(`${url}/200`);
    assert.equal(await left(), 3);
    await get(`${url}/304`);
    await until('the units of a 304 are given back', async () => (await left()) === 3);
    await get(`${url}/200`);
    assert.equal(await left(), 1);
  });
});
