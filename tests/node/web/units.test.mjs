// Limits with named units in every adapter: a request takes from each limit the units that `cost` gives.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Policy } from 'tidegate';
import { get, until } from './client.mjs';
import { forEachAdapter, items, limiting, pathOf } from './each_adapter.mjs';

const LLM = 'fixed-window 10/minute; fixed-window 1000 tokens/minute';

forEachAdapter(({ serving }) => {
  const statusOf = (response) => response.statusCode ?? response.status;
  const key = () => 'all';
  const left = async (limiter, policy, cost) =>
    (await limiter.peek(policy, 'all', { cost })).limits.map(({ remaining }) => remaining);

  test('a request takes of each limit what it says, and is announced with the units', async (t) => {
    const { limiter } = limiting({ llm: LLM });
    const url = await serving(t, { limits: [{ limiter, policy: 'llm', key, cost: { tokens: 300 } }] });
    const { headers } = await get(url);
    assert.deepEqual(await left(limiter, 'llm', { tokens: 0 }), [9, 700]);
    const policies = items(headers.get?.('ratelimit-policy') ?? headers['ratelimit-policy']);
    assert.deepEqual(policies['llm-2'], { q: 1000, qu: 'tokens', w: 60 });
    assert.deepEqual(policies['llm-1'], { q: 10, w: 60 });
    await get(url);
    await get(url);
    const refused = await get(url);
    assert.equal(refused.status, 429);
    assert.deepEqual(await left(limiter, 'llm', { tokens: 0 }), [7, 100]);
  });

  test('a function of the request says the units, settle and refundWhen correct them', async (t) => {
    const { limiter } = limiting({ llm: LLM });
    const cost = (request) => ({ tokens: pathOf(request) === '/304' ? 200 : 300 });
    const settle = (response) => (statusOf(response) === 201 ? { tokens: 120 } : undefined);
    const refundWhen = (response) => statusOf(response) === 304;
    const handler = async ({ url }) => ({ status: Number(url.slice(1)), body: '' });
    const url = await serving(t, { limits: [{ limiter, policy: 'llm', key, cost, settle, refundWhen }], handler });
    await get(`${url}/201`);
    await until('tokens went back', async () => String(await left(limiter, 'llm', { tokens: 0 })) === '9,880');
    await get(`${url}/304`);
    await until('all went back', async () => String(await left(limiter, 'llm', { tokens: 0 })) === '9,880');
    await get(`${url}/200`);
    assert.deepEqual(await left(limiter, 'llm', { tokens: 0 }), [8, 580]);
  });

  test('of several policies each takes the units that it counts, also of what is settled', async (t) => {
    for (const cost of [{ tokens: 300 }, () => ({ tokens: 300 })]) {
      const { limiter } = limiting({ all: 'fixed-window 5/minute', llm: LLM, busy: 'concurrency 2' });
      const policy = ['all', 'llm', 'busy'];
      const url = await serving(t, { limits: [{ limiter, policy, key, cost, settle: async () => ({ tokens: 250 }) }] });
      assert.equal((await get(url)).status, 200);
      await until('tokens are settled', async () => String(await left(limiter, 'llm', { tokens: 0 })) === '9,750');
      assert.deepEqual(await left(limiter, 'all', 1), [4]);
    }
    const { limiter } = limiting({ all: 'fixed-window 5/minute', llm: LLM });
    const policy = ['all', { policy: 'llm', cost: { tokens: 20 } }];
    await get(await serving(t, { limits: [{ limiter, policy, key, cost: 2 }] }));
    assert.deepEqual([await left(limiter, 'all', 1), await left(limiter, 'llm', { tokens: 0 })], [[3], [9, 980]]);
  });

  test('units that no request could be asked are an error at start, with what to do', async (t) => {
    const { limiter } = limiting({ all: '5/minute', llm: LLM });
    const mistakes = [
      [{ policy: 'llm' }, /"llm" counts tokens.*\{ tokens: 1200 \}/],
      [{ policy: 'llm', cost: 5 }, /"llm" counts tokens/],
      [{ policy: ['all', 'llm'] }, /"llm" counts tokens/],
      [{ policy: 'llm', cost: { tokens: 5, pages: 1 } }, /cost names "pages", which no policy counts.*tokens/],
      [{ policy: 'all', cost: { tokens: 5 } }, /"tokens"/],
      [{ policy: { policy: 'all', cost: { tokens: 5 } } }, /counts no "tokens"/],
      [{ policy: { policy: 'llm', cost: { tokens: -5 } } }, /-5 "tokens"/],
    ];
    for (const [options, says] of mistakes) {
      await assert.rejects(
        async () => serving(t, { limits: [{ limiter, key, ...options }] }),
        (error) => {
          assert.equal(error.code, 'config_invalid', `${says}: ${error.stack}`);
          assert.match(error.message, says);
          return true;
        },
      );
    }
  });

  test('a class is for the policies that have classes', async (t) => {
    const classed = new Policy('fixed-window 10/minute', { name: 'classed', priorities: { batch: '30%' } });
    const policies = { all: '50/minute', classed };
    for (const priority of ['batch', (request) => (pathOf(request) === '/' ? undefined : 'batch')]) {
      const { limiter } = limiting(policies);
      const url = await serving(t, { limits: [{ limiter, policy: ['all', 'classed'], key, cost: 7, priority }] });
      assert.equal((await get(`${url}/batch`)).status, 200);
      assert.equal((await get(`${url}/batch`)).status, 429);
      assert.deepEqual([await left(limiter, 'all', 1), await left(limiter, 'classed', 1)], [[43], [3]]);
    }
    const { limiter } = limiting(policies);
    const url = await serving(t, { limits: [{ limiter, policy: 'classed', key, cost: 8, priority: 'batch' }] });
    assert.equal((await get(url)).status, 429);
    for (const [options, says] of [
      [{ policy: 'all', priority: 'batch' }, /no policy has classes/],
      [{ policy: ['all', 'classed'], priority: 'bach' }, /"bach".*"classed".*did you mean batch/],
      [{ policy: 'classed', priority: 5 }, /priority must be the name of a class.*not 5/],
    ]) {
      await assert.rejects(
        async () => serving(t, { limits: [{ limiter, key, ...options }] }),
        (error) => error.code === 'config_invalid' && says.test(error.message),
      );
    }
  });
});
