// Partial checks, and the fields that came with them, where only Node can show them. The vectors have the rest.

import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { inspect } from 'node:util';

import { Limiter, ManualClock } from 'tidegate';
import { Servers } from '../servers/servers.mjs';

it('a partial check takes what there is', async () => {
  const limiter = new Limiter({ policies: { jobs: 'fixed-window 10/minute' } });
  const granted = [];
  for (const meta of [undefined, 'm', undefined, 'm']) {
    granted.push((await limiter.check('jobs', 'worker', { cost: 4, partial: true, meta })).granted);
  }
  assert.deepEqual(granted, [4, 4, 2, 0]);
  const none = await limiter.check('jobs', 'worker', { cost: 4, partial: true });
  assert.equal(none.allowed, false);
  assert.deepEqual([none.cost, none.nextAfterMs], [4, none.retryAfterMs]);
  // A key that is too long for the array of keys crosses alone.
  assert.equal((await limiter.check('jobs', 'k'.repeat(5_000), { cost: 12, partial: true })).granted, 10);
  assert.equal((await limiter.check('jobs', 'k', { cost: 12, partial: false })).granted, 0);
});

it('where a part is of no use it is refused', async () => {
  const limiter = new Limiter();
  for (const policy of ['concurrency 5', 'leaky-bucket 5/s']) {
    for (const meta of [undefined, 'm']) {
      const refused = limiter.check(policy, 'k', { cost: 2, partial: true, meta });
      await assert.rejects(refused, { code: 'config_invalid', message: /partial/ });
    }
  }
  const all = limiter.checkAll([['5/s', 'a']], { partial: true });
  await assert.rejects(all, { code: 'config_invalid', message: /all or nothing/ });
  for (const call of ['peek', 'acquire', 'hold']) {
    await assert.rejects(limiter[call]('5/s', 'k', { partial: true }), { code: 'config_invalid', message: /partial/ });
  }
  for (const partial of [1, 'yes', null]) {
    await assert.rejects(limiter.check('5/s', 'k', { partial }), { code: 'config_invalid', message: /partial/ });
  }
});

it('nextAfterMs and over', async () => {
  const limiter = new Limiter({ clock: new ManualClock(0), policies: { a: 'fixed-window 2/minute; gcra 10/s' } });
  const first = await limiter.check('a', 'k');
  assert.deepEqual([first.nextAfterMs, ...first.limits.map((limit) => limit.nextAfterMs)], [0, 0, 0]);
  assert.equal((await limiter.check('a', 'k')).nextAfterMs, 60_000);
  const charged = await limiter.charge('a', 'k', 3);
  assert.deepEqual([charged.granted, charged.remaining, charged.nextAfterMs], [3, 0, null]);
  assert.deepEqual(
    charged.limits.map((limit) => limit.over),
    [3, 0],
  );
  // A policy with one limit has a shorter record, unless the limit is exceeded by a charge.
  const one = await limiter.charge('fixed-window 2/minute', 'k', 3);
  assert.deepEqual([one.limits[0].over, one.limits[0].nextAfterMs, one.limits[0].limit], [1, null, 2]);
  assert.match(inspect(one), /granted: 3/);
});

it('unavailable says that the store is missing', async () => {
  const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError: 'closed', logger: false });
  const missing = await limiter.check('5/s', 'k', { cost: 3, partial: true });
  assert.deepEqual([missing.unavailable, missing.allowed, missing.granted], [true, false, 0]);
  assert.equal(missing.toJSON().unavailable, true);
  await limiter.close();
});

describe('on Redis', async () => {
  const servers = await Servers.start();
  after(() => servers.close());

  it('a denial of a larger cost never answers a partial check, one of one unit does', async () => {
    const policies = { p: 'fixed-window 5/hour' };
    const limiter = new Limiter({ store: servers.url, policies, timeoutMs: 10_000, denyCacheMs: 60_000 });
    const take = () => limiter.check('p', 'k', { cost: 4, partial: true });
    await limiter.check('p', 'k', { cost: 3 });
    for (let time = 0; time < 3; time++) {
      assert.equal((await limiter.check('p', 'k', { cost: 3 })).allowed, false);
    }
    const part = await take();
    assert.deepEqual([part.granted, part.source], [2, 'store']);
    assert.equal((await limiter.check('p', 'k')).source, 'store');
    const none = await take();
    assert.deepEqual([none.granted, none.source, none.cost], [0, 'deny-cache', 4]);
    await limiter.refund('p', 'k');
    assert.deepEqual([(await take()).granted, (await take()).allowed], [1, false]);
    await limiter.close();
  });
});
