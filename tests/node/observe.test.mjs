// A limiter learns from the limits that a response announces.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, Limiter, ManualClock, Policy } from 'tidegate';

const START = 1_700_000_000_000;

/** A limiter for one test. */
async function withLimiter(options, run) {
  const limiter = new Limiter(options);
  try {
    await run(limiter);
  } finally {
    await limiter.close();
  }
}

test('usage is raised until its reset, and never lowered', async () => {
  const clock = new ManualClock(START);
  await withLimiter({ clock }, async (limiter) => {
    const seen = await limiter.observe('10/minute', 'k', {
      limit: 10,
      remaining: 2,
      resetAfterMs: 30_000,
      scope: 'key',
    });
    assert.deepEqual([seen.limit, seen.remaining, seen.learned], [10, 2, true]);
    const checks = [];
    for (let i = 0; i < 3; i++) checks.push((await limiter.check('10/minute', 'k')).allowed);
    assert.deepEqual(checks, [true, true, false]);
    const denied = await limiter.observe('10/minute', 'k', [
      { limit: 10, remaining: 10, resetAfterMs: 60_000, scope: 'key' },
    ]);
    assert.deepEqual([denied.remaining, denied.toJSON().learned], [0, true]);
    clock.advance(30_000);
    assert.equal((await limiter.peek('10/minute', 'k')).remaining, 8);
  });
});

test('a wait blocks the key', async () => {
  const clock = new ManualClock(START);
  await withLimiter({ clock }, async (limiter) => {
    const policy = Policy.learned();
    await limiter.observe(policy, 'k', { retryAfterMs: 20_000, scope: 'key' });
    const denied = await limiter.check(policy, 'k');
    assert.deepEqual([denied.allowed, denied.learned, denied.retryAfterMs], [false, true, 20_000]);
  });
});

test('calls on their way are counted', async () => {
  await withLimiter({ clock: new ManualClock(START) }, async (limiter) => {
    const policy = Policy.learned();
    const decisions = [];
    for (let i = 0; i < 4; i++) decisions.push(await limiter.check(policy, 'k'));
    const said = { limit: 10, remaining: 9, resetAfterMs: 30_000, scope: 'key' };
    const seen = await limiter.observe(policy, 'k', said, { decision: decisions[0] });
    assert.deepEqual([seen.limit, seen.remaining], [10, 6]);
  });
});

test('a paced policy keeps a margin', () => {
  const paced = new Policy('100/10s; token-bucket 10/s', { name: 'api' }).paced();
  assert.equal(paced.name, 'api');
  assert.deepEqual([paced.limits[0].periodMs, paced.limits[1].burst], [10_100, 9]);
  assert.throws(() => new Policy('1/s').paced('x'), ConfigError);
});

test('bad input is an error', async () => {
  await withLimiter({}, async (limiter) => {
    for (const wrong of [null, undefined, 5, 'x', [1]]) {
      await assert.rejects(limiter.observe('1/s', 'k', wrong), ConfigError);
    }
    await assert.rejects(limiter.observe('1/s', 'k', { limit: -1, scope: 'key' }), ConfigError);
    await assert.rejects(limiter.observe('1/s', 'k', { limit: 1, scope: 'world' }), ConfigError);
    await assert.rejects(limiter.observe('1/s', 'k', [], { decision: 1 }), ConfigError);
  });
});
