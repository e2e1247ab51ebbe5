// The contents of `limiter.stats()`.

import assert from 'node:assert/strict';
import { it } from 'node:test';

import { Limiter, ManualClock } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

it('has the documented shape', async () => {
  const limiter = new Limiter({ policies: { login: 'fixed-window 5/minute' }, clock: new ManualClock(0) });
  for (let call = 0; call < 6; call++) await limiter.check('login', 'alice');
  await limiter.peek('login', 'alice');
  const stats = limiter.stats();
  assert.deepEqual(JSON.parse(JSON.stringify(stats)), stats);
  assert.deepEqual(stats.policies, {
    login: {
      allowed: 5,
      denied: 1,
      unavailable: 0,
      nearLimit: 2,
      shadowDenied: 0,
      sources: { store: 6, 'deny-cache': 0, lease: 0, fallback: 0 },
    },
  });
  assert.deepEqual(stats.store.errors, { store_unavailable: 0, store_timeout: 0, store_rejected: 0 });
  assert.equal(stats.store.latency.counts.length, stats.store.latency.bounds.length + 1);
  assert.deepEqual([stats.breaker, stats.counters], [{}, limiter.counters()]);
  assert.ok(!JSON.stringify(stats).includes('alice'));
});

it('counts the denials that JavaScript repeats', async () => {
  const servers = await Servers.start('single');
  try {
    const limits = { login: 'fixed-window 2/minute' };
    const limiter = new Limiter({ store: servers.url, policies: limits, timeoutMs: 5_000, denyCacheMs: 60_000 });
    for (let call = 0; call < 10; call++) await limiter.check('login', 'alice');
    const { policies, store, breaker, counters } = limiter.stats();
    assert.deepEqual([policies.login.allowed, policies.login.denied], [2, 8]);
    assert.deepEqual(policies.login.sources, { store: 3, 'deny-cache': 7, lease: 0, fallback: 0 });
    assert.deepEqual([store.calls, store.latency.count, store.batchSize.count], [3, 3, 3]);
    assert.deepEqual([Object.values(breaker), counters.denyCache], [['ok'], 7]);
    await limiter.close();
  } finally {
    await servers.close();
  }
});
