// Classes of calls leave a part of each limit free.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { Servers } from '../servers/servers.mjs';

const PRIORITIES = { batch: '30%', background: '60%' };

function limiting(t) {
  const policies = {
    api: new Policy('fixed-window 10/minute', { priorities: PRIORITIES }),
    plain: '5/minute',
    jobs: new Policy('concurrency 10', { priorities: { batch: '50%' } }),
  };
  const limiter = new Limiter({ policies, clock: new ManualClock(1_700_000_000_000) });
  t.after(() => limiter.close());
  return limiter;
}

test('a class takes what is left beside its part', async (t) => {
  const limiter = limiting(t);
  assert.equal((await limiter.peek('api', 'k', { priority: 'batch' })).remaining, 7);
  const admitted = await limiter.check('api', 'k', { cost: 7, priority: 'batch' });
  assert.deepEqual([admitted.allowed, admitted.remaining], [true, 0]);
  const denied = await limiter.check('api', 'k', { priority: 'batch' });
  assert.equal(denied.allowed, false);
  // A denial of a class answers no call without one.
  assert.equal((await limiter.check('api', 'k')).allowed, true);
  assert.equal((await limiter.checkAll([{ policy: 'api', key: 'k', priority: 'batch' }])).allowed, false);
  assert.equal((await limiter.checkAll([{ policy: 'api', key: 'k' }])).allowed, true);
  assert.equal((await limiter.acquire('api', 'k', { priority: 'batch', timeoutMs: 0 })).allowed, false);
  await limiter.settle(admitted, 1);
  assert.equal((await limiter.peek('api', 'k')).remaining, 7);
  const hold = await limiter.hold('jobs', 'k', { cost: 5, priority: 'batch' });
  await assert.rejects(limiter.hold('jobs', 'k', { priority: 'batch' }), { code: 'rate_limited' });
  await hold.release();
});

test('a class that is not declared is an error', async (t) => {
  const limiter = limiting(t);
  const invalid = { code: 'config_invalid', message: /priority/ };
  await assert.rejects(limiter.check('api', 'k', { priority: 'bach' }), { ...invalid, message: /did you mean/ });
  await assert.rejects(limiter.check('plain', 'k', { priority: 'batch' }), { ...invalid, message: /no classes/ });
  await assert.rejects(limiter.check('api', 'k', { priority: 5 }), invalid);
  await assert.rejects(limiter.refund('api', 'k', { priority: 'batch' }), invalid);
  assert.deepEqual(limiter.policy('api').priorities, PRIORITIES);
  for (const priorities of [{ batch: 30 }, 'batch', ['batch'], { 'a: 1%, b': '2%' }, { batch: '100%' }, {}]) {
    assert.throws(() => new Policy('10/minute', { priorities }), { code: 'policy_invalid' });
  }
});

test('a denial that is repeated in process answers only the same call', async (t) => {
  const servers = await Servers.start('single');
  const policies = {
    api: new Policy('fixed-window 10/hour', { priorities: PRIORITIES }),
    tokens: 'fixed-window 10 tokens/hour',
    calls: 'fixed-window 1/hour',
  };
  const limiter = new Limiter({ store: servers.url, policies, denyCacheMs: 60_000, timeoutMs: 20_000 });
  t.after(async () => {
    await limiter.close();
    await servers.close();
  });
  await limiter.check('api', 'k', { cost: 7 });
  for (let call = 0; call < 3; call++) {
    assert.equal((await limiter.check('api', 'k', { priority: 'batch' })).allowed, false);
  }
  assert.equal((await limiter.check('api', 'k')).allowed, true);
  await limiter.check('tokens', 'k', { cost: { tokens: 9 } });
  for (let call = 0; call < 3; call++) {
    assert.equal((await limiter.check('tokens', 'k', { cost: { tokens: 2 } })).allowed, false);
  }
  assert.equal((await limiter.check('tokens', 'k', { cost: { tokens: 1 } })).allowed, true);
  await limiter.check('calls', 'k');
  for (let call = 0; call < 3; call++) assert.equal((await limiter.check('calls', 'k')).allowed, false);
  const free = await limiter.check('calls', 'k', { cost: { cost: 0 } });
  assert.deepEqual([free.allowed, free.source], [true, 'store']);
});
