// Blocks that become longer.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { problem } from 'tidegate/http';

test('each further block is longer', async () => {
  const clock = new ManualClock(1_700_000_000_000);
  const policy = new Policy('fixed-window 1/s', { blockFor: ['10s', 100_000, '10m'], forgive: '1h', name: 'p' });
  assert.deepEqual([policy.blockForMs, policy.forgiveMs], [[10_000, 100_000, 600_000], 3_600_000]);
  const limiter = new Limiter({ policies: { p: policy }, clock });
  for (const length of [10_000, 100_000, 600_000, 600_000]) {
    assert.ok((await limiter.check('p', 'k')).allowed);
    const denied = await limiter.check('p', 'k');
    assert.deepEqual([denied.allowed, denied.abnormal, denied.retryAfterMs], [false, true, length]);
    assert.match(problem(denied), /abnormal-usage-detected/);
    clock.advance(length);
  }
  await limiter.close();
});

test('what is no list of lengths is refused', () => {
  for (const blockFor of [[], ['1m', 0], ['1m', [2]], Array(17).fill('1m'), ['1m', true]]) {
    assert.throws(() => new Policy('5/s', { blockFor }), { code: 'policy_invalid' }, JSON.stringify(blockFor));
  }
  assert.throws(() => new Policy('5/s', { forgive: '1h' }), { code: 'policy_invalid' });
  assert.equal(new Policy('5/s', { blockFor: ['1m'] }).blockForMs, 60_000);
});
