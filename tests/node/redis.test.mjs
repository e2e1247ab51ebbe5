// A limiter on Redis: many calls at once, closing, repeated denials, metadata.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { Limiter, Policy } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

describe('on Redis', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());
  const open = (options = {}) =>
    new Limiter({ store: servers.url, timeoutMs: 20_000, denyCacheMs: 60_000, ...options });

  it('many calls at once are each answered once, in any order', async () => {
    const limiter = open({ prefix: 'many' });
    const keys = Array.from({ length: 5_000 }, (_, index) => `${index % 7}${'☂'.repeat(index % 50)}`);
    const counts = new Map();
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    const decisions = await Promise.all(keys.map((key) => limiter.check('fixed-window 10/hour', key)));
    for (const [index, decision] of decisions.entries()) assert.equal(decision.key, keys[index]);
    for (const [key, count] of counts) {
      const allowed = decisions.filter((decision) => decision.key === key && decision.allowed).length;
      assert.equal(allowed, Math.min(10, count), key);
    }
    await limiter.close();
  });

  it('each call of a mixture gets its own answer', async () => {
    const limiter = open({ prefix: 'mixed' });
    const calls = Array.from({ length: 600 }, (_, index) => {
      const key = `k${index}`;
      switch (index % 5) {
        case 0:
          return limiter
            .check('fixed-window 10/hour', key, { cost: 3 })
            .then((answer) => answer.remaining === 7 && answer.key === key);
        case 1:
          return limiter.charge('fixed-window 10/hour', key, 20).then((answer) => answer.remaining === 0);
        case 2:
          return limiter
            .check('fixed-window 10/hour', key, { cost: 0 })
            .catch((error) => error.code === 'cost_invalid');
        case 3:
          return limiter.clear('fixed-window 10/hour', key).then((answer) => answer === undefined);
        default:
          return limiter
            .checkAll([
              ['fixed-window 10/hour', `${key}a`],
              ['fixed-window 5/hour', `${key}b`, 2],
            ])
            .then((answer) => answer.decisions[0].remaining === 9 && answer.decisions[1].remaining === 3);
      }
    });
    assert.ok((await Promise.all(calls)).every(Boolean));
    await limiter.close();
  });

  it('close answers the calls that wait', async () => {
    const limiter = open({ prefix: 'close' });
    await limiter.ping();
    await servers.stop(0);
    const calls = Array.from({ length: 1_000 }, (_, index) => limiter.check('5/s', `${index}`));
    const settled = Promise.allSettled(calls);
    const closed = limiter.close();
    await servers.cont(0);
    await closed;
    for (const { status, reason } of await settled) {
      assert.ok(status === 'fulfilled' || reason.code === 'closed', reason?.stack);
    }
  });

  it('a denial is repeated without asking Redis, until units are given back', async () => {
    const limiter = open({ prefix: 'deny' });
    const policy = 'fixed-window 2/minute';
    const scriptCalls = async () => {
      const stats = await servers.command(['INFO', 'commandstats']);
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    };
    const check = () => limiter.check(policy, 'a');
    await check();
    const decision = await check();
    const denied = await check();
    assert.equal(denied.source, 'store');
    const before = await scriptCalls();
    const again = await check();
    assert.equal(again.source, 'deny-cache');
    assert.equal(again.allowed, false);
    assert.ok(again.retryAfterMs <= denied.retryAfterMs && again.retryAfterMs > denied.retryAfterMs - 1_000);
    assert.equal(+again.resetAt, +denied.resetAt);
    assert.equal(again.limits[0].exceeded, true);
    assert.equal(await scriptCalls(), before);
    assert.equal((await limiter.check(policy, 'a', { cost: 2 })).source, 'store');
    for (const giveBack of [
      () => limiter.settle(decision, 0),
      () => limiter.refund(policy, 'a'),
      () => limiter.clear(policy, 'a'),
    ]) {
      await giveBack();
      assert.ok((await check()).allowed);
      while ((await check()).allowed);
      assert.equal((await check()).source, 'deny-cache');
    }
    // A call that has not crossed yet, and one that other calls overtake.
    const others = Array.from({ length: 9 }, (_, index) => limiter.check(policy, `other ${index}`));
    const [, checked] = await Promise.all([limiter.refund(policy, 'a'), check(), ...others]);
    assert.ok(checked.allowed);
    assert.equal((await check()).allowed, false);
    const [, peeked] = await Promise.all([limiter.clear(policy, 'a'), limiter.peek(policy, 'a')]);
    assert.ok(peeked.allowed && (await check()).allowed);
    await limiter.close();
  });

  it('denials that have to be counted or logged always ask Redis', async () => {
    const limiter = open({ prefix: 'always' });
    for (const policy of [
      new Policy('fixed-window 1/minute', { countDenied: true }),
      new Policy('fixed-window 2/minute', { journal: 5 }),
    ]) {
      for (let time = 0; time < 5; time++) {
        assert.equal((await limiter.check(policy, 'a')).source, 'store', `${policy}`);
      }
    }
    const never = open({ prefix: 'always', denyCacheMs: 0 });
    for (let time = 0; time < 5; time++) assert.equal((await never.check('1/hour', 'b')).source, 'store');
    await never.close();
    await limiter.close();
  });

  it('a secret names other keys', async () => {
    const secret = 'SECRET-of-the-test-0123456789';
    const left = async (options) => {
      const limiter = open({ prefix: 'secret', ...options });
      const { remaining } = await limiter.check('5/hour', 'a');
      await limiter.close();
      return remaining;
    };
    assert.deepEqual([await left({ keySecret: secret }), await left({ keySecret: Buffer.from(secret) })], [4, 3]);
    assert.deepEqual([await left({}), await left({ keySecret: undefined })], [4, 3]);
    for (const keySecret of ['SECRET', 7]) {
      const wrong = (error) =>
        error.code === 'config_invalid' && /key_?secret/i.test(error.message) && !/SECRET/.test(error.message);
      assert.throws(() => open({ keySecret }), wrong);
    }
  });

  it('metadata comes back', async () => {
    const limiter = open({ prefix: 'meta', policies: { p: new Policy('5/s', { journal: 3 }) } });
    await limiter.check('p', 'a', { meta: 'ünï ☂' });
    await limiter.check('p', 'a', { meta: Uint8Array.of(255, 0) });
    const [second, first] = await limiter.journal('p', 'a');
    assert.equal(first.meta, 'ünï ☂');
    assert.deepEqual([...second.metaBytes], [255, 0]);
    await limiter.close();
  });
});
