// Holds that wait for room, settle their charges, and end with their age.

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { Servers } from '../servers/servers.mjs';

let redis;
before(async () => {
  redis = await Servers.start('single');
});
after(() => redis?.close());

for (const kind of ['memory', 'redis']) {
  suite(`holds that wait: ${kind}`, () => {
    const limiting = (t, options = {}) => {
      const store = kind === 'memory' ? 'memory://' : redis.url;
      const policies = { one: 'concurrency 1 ttl 30s', llm: '500/minute; 100000 tokens/minute; concurrency 8' };
      const limiter = new Limiter({ store, prefix: t.name, policies, timeoutMs: 20_000, ...options });
      t.after(() => limiter.close());
      return limiter;
    };

    test('in the order in which they came', async (t) => {
      const limiter = limiting(t);
      const order = [];
      const first = await limiter.hold('one', 'k');
      const waiting = [];
      for (const number of [1, 2, 3]) {
        waiting.push(limiter.hold('one', 'k', () => order.push(number), { timeoutMs: Infinity }));
        while (limiter.waiting('one', 'k') < number) await sleep(1);
      }
      await first.release();
      await Promise.all(waiting);
      assert.deepEqual(order, [1, 2, 3]);
    });

    test('and give up in time, or at once', async (t) => {
      const limiter = limiting(t);
      const first = await limiter.hold('one', 'k', { cost: 1, timeoutMs: 5_000 });
      await assert.rejects(limiter.hold('one', 'k'), { code: 'rate_limited' });
      const began = performance.now();
      await assert.rejects(limiter.hold('one', 'k', { timeoutMs: 200 }), { code: 'rate_limited' });
      assert.ok(performance.now() - began >= 199);
      const controller = new AbortController();
      const aborted = limiter.hold('one', 'k', { timeoutMs: Infinity, signal: controller.signal });
      while (limiter.waiting('one', 'k') < 1) await sleep(1);
      controller.abort(new Error('enough'));
      await assert.rejects(aborted, /enough/);
      await first.release();
      assert.equal(await limiter.hold('one', 'k', (hold) => hold.decision.granted, { timeoutMs: 20_000 }), 1);
    });

    test('a hold settles once', async (t) => {
      const limiter = limiting(t);
      const left = async () =>
        (await limiter.peek('llm', 'org', { cost: { tokens: 1 } })).limits.map((l) => l.remaining);
      await limiter.hold(
        'llm',
        'org',
        async (hold) => {
          assert.deepEqual(await left(), [499, 98_800, 7]);
          await hold.settle({ tokens: 934 });
          assert.deepEqual(await left(), [499, 99_066, 7]);
          await assert.rejects(hold.settle({ tokens: 1 }), { code: 'config_invalid' });
        },
        { cost: { tokens: 1200 } },
      );
      assert.deepEqual(await left(), [499, 99_066, 8]);
    });

    test('a hold has a longest age', async (t) => {
      const clock = new ManualClock(1_700_000_000_000);
      const limiter = limiting(t, { clock });
      const policy = new Policy('concurrency 1 ttl 30s', { maxHold: '1m' });
      const hold = await limiter.hold(policy, 'k');
      for (let second = 0; second < 95; second++) clock.advance(1_000);
      assert.equal(hold.lost, true);
      await (await limiter.hold(policy, 'k')).release();
    });

    test('a turn is settled as of its moment', async (t) => {
      const clock = new ManualClock(1_700_000_000_000);
      const limiter = limiting(t, { clock });
      const policy = 'gcra 1/s burst 5';
      await limiter.check(policy, 'k', { cost: 5 });
      const turn = limiter.acquire(policy, 'k', { cost: 4 });
      while (limiter.waiting(policy, 'k') < 1) await sleep(1);
      clock.advance(4_000);
      const decision = await turn;
      clock.advance(1_000);
      await limiter.settle(decision, 1);
      assert.equal((await limiter.peek(policy, 'k')).remaining, 4);
    });
  });
}
