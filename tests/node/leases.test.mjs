// Leases in Node: the option, the source, the counters.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Limiter, Policy } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const hot = new Policy('fixed-window 1000000/hour', { lease: '5%', name: 'hot' });

it('the option is checked', () => {
  assert.deepEqual([hot.lease, new Policy('5/s', { lease: 3 }).lease, new Policy('5/s').lease], ['5%', 3, undefined]);
  for (const lease of ['', '5 percent', '0%', '101%', 0, -1, 1.5, 1e13, Number.NaN, true, {}]) {
    assert.throws(() => new Policy('5/s', { lease }), { code: 'policy_invalid', message: /lease/ });
  }
  for (const [limits, options] of [
    ['concurrency 5'],
    ['leaky-bucket 5/s'],
    ['5/s', { journal: 3 }],
    ['5/s', { countDenied: true }],
  ]) {
    assert.throws(() => new Policy(limits, { ...options, lease: '5%' }), {
      code: 'policy_invalid',
      message: /cannot lease/,
    });
  }
});

describe('a hot key', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers.close());

  it('needs few calls, and each unit is charged once', async () => {
    const options = { store: servers.url, prefix: 'hot', timeoutMs: 5000 };
    const limiter = new Limiter(options);
    let leased = 0;
    for (let round = 0; round < 300; round++) {
      const decisions = await Promise.all(Array.from({ length: 64 }, () => limiter.check(hot, 'k')));
      leased += decisions.filter(({ allowed, source }) => allowed && source === 'lease').length;
    }
    assert.ok(leased > 10_000, `${leased} of 19,200`);
    assert.equal(limiter.counters().lease, leased);
    await limiter.close();
    const other = new Limiter(options);
    assert.equal((await other.peek(hot, 'k')).remaining, 1_000_000 - 300 * 64);
    await other.block(hot, 'k', 60_000);
    assert.equal((await other.check(hot, 'k')).allowed, false);
    await other.close();
  });
});
