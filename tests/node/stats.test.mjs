// The contents of `limiter.stats()`.

import assert from 'node:assert/strict';
import process from 'node:process';
import { it } from 'node:test';

import { Limiter, ManualClock } from 'tidegate';

import { Servers } from '../servers/servers.mjs';
import { until } from './web/client.mjs';

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

it('tells a key near its limit once in a window', async () => {
  const clock = new ManualClock(1_700_000_040_000);
  const [told, warnings] = [[], []];
  const onNearLimit = (near) => {
    told.push(near);
    throw new Error('a mistake');
  };
  const warned = (warning) => warnings.push(warning.message);
  process.on('warning', warned);
  const limiter = new Limiter({ policies: { login: 'fixed-window 10/minute' }, clock, onNearLimit });
  for (let call = 0; call < 12; call++) await limiter.check('login', 'alice');
  await until('it is told', () => told.length === 1 && warnings.includes('a mistake'));
  process.off('warning', warned);
  const near = { policy: 'login', key: 'alice', notation: 'fixed-window 10/minute', limit: 10, remaining: 2 };
  assert.deepEqual(told, [{ ...near, resetAfterMs: 60_000 }]);
  clock.advance(60_000);
  await limiter.check('login', 'alice', { cost: 8 });
  await until('the next window is told', () => told.length === 2);
  const half = [];
  const other = new Limiter({ onNearLimit: (near) => half.push(near.remaining), nearLimit: 0.5 });
  await other.check('10/minute', 'bob', { cost: 5 });
  await until('half of it is near', () => half.length === 1);
  for (const options of [{ onNearLimit: 5 }, { nearLimit: 2 }, { nearLimit: '1' }]) {
    assert.throws(() => new Limiter(options), { code: 'config_invalid' });
  }
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
