// Texts that UTF-8 cannot express, and texts that are too long for a message.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import { Limit, Limiter, lint, Policy, RateLimited, rollout } from 'tidegate';
import { header } from 'tidegate/express';

// Half a surrogate pair. Node-API would turn it into U+FFFD, which is another text.
const HALF = 'a\ud800';
const REPLACED = 'a\ufffd';
const LONG = 'k'.repeat(60_000);
// The most characters of a text that a message shows.
const MOST = 64;

const calls = {
  check: [(limiter) => limiter.check(HALF, 'k'), 'policy_invalid'],
  'check, key': [(limiter) => limiter.check('1/s', HALF), 'key_invalid'],
  'check, meta': [(limiter) => limiter.check('1/s', 'k', { meta: HALF }), 'config_invalid'],
  peek: [(limiter) => limiter.peek(HALF, 'k'), 'policy_invalid'],
  charge: [(limiter) => limiter.charge(HALF, 'k', 1), 'policy_invalid'],
  refund: [(limiter) => limiter.refund(HALF, 'k'), 'policy_invalid'],
  checkAll: [(limiter) => limiter.checkAll([[HALF, 'k']]), 'policy_invalid'],
  'checkAll, key': [(limiter) => limiter.checkAll([['1/s', HALF]]), 'key_invalid'],
  acquire: [(limiter) => limiter.acquire(HALF, 'k'), 'policy_invalid'],
  hold: [(limiter) => limiter.hold(HALF, 'k'), 'policy_invalid'],
  'hold, key': [(limiter) => limiter.hold('concurrency 1', HALF), 'key_invalid'],
  block: [(limiter) => limiter.block(HALF, 'k', 1), 'policy_invalid'],
  unblock: [(limiter) => limiter.unblock(HALF, 'k'), 'policy_invalid'],
  clear: [(limiter) => limiter.clear(HALF, 'k'), 'policy_invalid'],
  journal: [(limiter) => limiter.journal(HALF, 'k'), 'policy_invalid'],
  waiting: [async (limiter) => limiter.waiting(HALF, 'k'), 'policy_invalid'],
  'waiting, key': [async (limiter) => limiter.waiting('1/s', HALF), 'key_invalid'],
  policy: [async (limiter) => limiter.policy(HALF), 'policy_invalid'],
  wrap: [(limiter) => limiter.wrap(HALF, () => {}, { key: 'k' })(), 'policy_invalid'],
};
const makers = {
  'Policy, notation': [() => new Policy(HALF), 'policy_invalid'],
  'Policy, notations': [() => new Policy(['1/s', HALF]), 'policy_invalid'],
  'Policy, name': [() => new Policy('1/s', { name: HALF }), 'policy_invalid'],
  'Policy, onStoreError': [() => new Policy('1/s', { onStoreError: HALF }), 'policy_invalid'],
  'Policy, blockFor': [() => new Policy('1/s', { blockFor: HALF }), 'policy_invalid'],
  'Limit, algorithm': [() => new Limit(HALF, 1, { period: 1000 }), 'policy_invalid'],
  'Limit, period': [() => new Limit('gcra', 1, { period: HALF }), 'policy_invalid'],
  'Limiter, store': [() => new Limiter({ store: `redis://${HALF}` }), 'config_invalid'],
  'Limiter, stores': [() => new Limiter({ store: ['redis://h', `redis://${HALF}`] }), 'config_invalid'],
  'Limiter, prefix': [() => new Limiter({ prefix: HALF }), 'config_invalid'],
  'Limiter, onStoreError': [() => new Limiter({ onStoreError: HALF }), 'config_invalid'],
  'Limiter, policies, name': [() => new Limiter({ policies: { [HALF]: '1/s' } }), 'policy_invalid'],
  'Limiter, policies, notation': [() => new Limiter({ policies: { p: HALF } }), 'policy_invalid'],
  'Limiter, policies, limits': [() => new Limiter({ policies: { p: { limits: HALF } } }), 'policy_invalid'],
  'Limiter.fromFile': [() => Limiter.fromFile(`${HALF}.yaml`), 'policy_invalid'],
  lint: [() => lint(`${HALF}.yaml`), 'policy_invalid'],
  rollout: [() => rollout(`redis://${HALF}`, 'redis://h', 1), 'config_invalid'],
  header: [() => header('x-api-key')({ headers: { 'x-api-key': HALF }, socket: {} }), 'key_invalid'],
};

describe('half a surrogate pair is refused, so that no two texts are one', () => {
  for (const [name, [call, code]] of Object.entries(calls)) {
    it(name, async () => {
      await assert.rejects(async () => call(new Limiter()), { code });
    });
  }
  for (const [name, [make, code]] of Object.entries(makers)) {
    it(name, async () => {
      await assert.rejects(async () => make(), { code });
    });
  }
  it('a name that has the replacement is another one', async () => {
    const limiter = new Limiter({ policies: { [REPLACED]: '1/hour' } });
    assert.ok((await limiter.check(REPLACED, REPLACED)).allowed);
    await assert.rejects(limiter.check(HALF, REPLACED), { code: 'policy_invalid' });
    await assert.rejects(limiter.check(REPLACED, HALF), { code: 'key_invalid' });
  });
});

describe('messages', () => {
  it('show long keys shortened', async () => {
    const limiter = new Limiter({ policies: { p: '1/hour', held: 'concurrency 1' } });
    await limiter.check('p', LONG);
    const denied = await limiter.check('p', LONG);
    assert.equal(denied.key, LONG);
    assert.equal(denied.toJSON().key, LONG);
    const together = await limiter.checkAll([['p', LONG]]);
    const hold = await limiter.hold('held', LONG);
    const refused = await limiter.hold('held', LONG).catch((error) => error);
    assert.ok(refused instanceof RateLimited);
    for (const shown of [inspect(denied), inspect(together), inspect(hold), inspect(refused)]) {
      assert.ok(shown.includes('k'.repeat(MOST)) && !shown.includes('k'.repeat(MOST + 1)), shown.slice(0, 500));
      assert.match(shown, /60000 characters/);
    }
    assert.ok(!String(refused).includes('kk'));
    await hold.release();
    const cut = await limiter.check('p', `${'k'.repeat(MOST - 1)}😀😀`);
    assert.ok(inspect(cut).isWellFormed());
  });

  it('show no keys that are no text', async () => {
    const limiter = new Limiter();
    const secret = Buffer.from('tg_live_0123456789');
    for (const wrong of [
      secret,
      new Uint8Array(secret),
      [secret],
      { key: 'tg_live_0123456789' },
      () => 'tg_live_0123',
    ]) {
      for (const call of [
        () => limiter.check('1/s', wrong),
        () => limiter.clear('1/s', wrong),
        () => limiter.check('1/s', 'k', { cost: wrong }),
        () => limiter.check(wrong, 'k'),
        () => limiter.check('1/s', 'k', { meta: Array.isArray(wrong) ? wrong : {} }),
      ]) {
        const error = await call().catch((error) => error);
        assert.match(error.code, /_invalid$/);
        assert.doesNotMatch(inspect(error).split('\n')[0], /0123|116|"data"/);
      }
    }
    const long = await limiter.check('1/s', 'k', { cost: LONG }).catch((error) => error);
    assert.ok(!long.message.includes('k'.repeat(MOST + 1)), long.message.slice(0, 200));
  });
});
