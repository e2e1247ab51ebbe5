// Calls that wait or hold units: `hold` and `acquire`, their signals and their end.

import assert from 'node:assert/strict';
import process from 'node:process';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';

import { Hold, Limiter, ManualClock, RateLimited } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

describe('waits', () => {
  it('may share one signal', async () => {
    const limiter = new Limiter();
    const controller = new AbortController();
    const warnings = [];
    const warned = (warning) => warnings.push(warning.message);
    process.on('warning', warned);
    const { signal } = controller;
    let listening = 0;
    const { addEventListener, removeEventListener } = signal;
    signal.addEventListener = (...given) => {
      listening++;
      return addEventListener.apply(signal, given);
    };
    signal.removeEventListener = (...given) => {
      listening--;
      return removeEventListener.apply(signal, given);
    };
    try {
      await limiter.check('fixed-window 1/hour', 'a');
      const held = await limiter.hold('concurrency 1', 'a');
      const waits = Array.from({ length: 50 }, (_, index) =>
        index % 2 === 0
          ? limiter.acquire('fixed-window 1/hour', 'a', { signal })
          : limiter.hold('concurrency 1', 'a', { signal, timeoutMs: 60_000 }),
      );
      await setImmediate();
      assert.equal(listening, 1);
      controller.abort(new Error('enough'));
      for (const one of await Promise.allSettled(waits)) assert.equal(one.reason?.message, 'enough');
      assert.equal(listening, 0);
      await held.release();
      await setImmediate();
      assert.deepEqual(warnings, []);
    } finally {
      process.off('warning', warned);
    }
  });

  it('take every timeout up to the largest whole number', async () => {
    const limiter = new Limiter();
    for (const timeoutMs of [2 ** 31, 2 ** 40, 2 ** 50, Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, Infinity]) {
      assert.equal((await limiter.acquire('1/hour', `a${timeoutMs}`, { timeoutMs })).allowed, true);
      assert.equal(await limiter.hold('concurrency 1', `a${timeoutMs}`, () => 'held', { timeoutMs }), 'held');
      // One of these calls waits.
      const waiting = [
        limiter.acquire('fixed-window 2/second', `b${timeoutMs}`, { cost: 2, timeoutMs }),
        limiter.acquire('fixed-window 2/second', `b${timeoutMs}`, { cost: 2, timeoutMs }),
      ];
      for (const { allowed } of await Promise.all(waiting)) assert.equal(allowed, true);
    }
    for (const timeoutMs of [-1, Number.NaN, -Infinity]) {
      await assert.rejects(limiter.hold('concurrency 1', 'c', { timeoutMs }), { code: 'config_invalid' });
    }
    const tooLong = { code: 'config_invalid', message: /out of range: it must be/ };
    for (const ms of [2 ** 50, Number.MAX_SAFE_INTEGER]) {
      assert.throws(() => new Limiter({ timeoutMs: ms }), tooLong);
      await assert.rejects(limiter.override('1/hour', 'a', '2/hour', { ttlMs: ms }), tooLong);
      await assert.rejects(limiter.block('1/hour', 'a', ms), tooLong);
    }
  });
});

describe('holds', () => {
  const policy = 'concurrency 1';

  it('last as long as the function runs', async () => {
    const limiter = new Limiter();
    const result = await limiter.hold(policy, 'a', async (hold) => {
      assert.ok(hold instanceof Hold && hold.decision.allowed);
      await assert.rejects(limiter.hold(policy, 'a'), (error) => !error.decision.allowed);
      return 'done';
    });
    assert.equal(result, 'done');
    await assert.rejects(
      limiter.hold(policy, 'a', () => {
        throw new Error('from the function');
      }),
      /from the function/,
    );
    assert.equal((await limiter.peek(policy, 'a')).remaining, 1);
  });

  it('are given back when they are disposed', async () => {
    const limiter = new Limiter();
    const hold = await limiter.hold(policy, 'a');
    assert.equal((await limiter.peek(policy, 'a')).remaining, 0);
    await hold[Symbol.asyncDispose]();
    await hold.release();
    assert.equal((await limiter.peek(policy, 'a')).remaining, 1);
  });

  it('are lost when another client clears their key', async () => {
    const servers = await Servers.start('single');
    try {
      const clock = new ManualClock(1_700_000_000_000);
      const lines = [];
      const logger = { warn: (line) => lines.push(line), info: () => {} };
      const renewed = 'concurrency 2 ttl 30s';
      const one = new Limiter({ store: servers.url, timeoutMs: 20_000, clock, logger });
      const other = new Limiter({ store: servers.url, timeoutMs: 20_000, clock });
      const kept = await one.hold(renewed, 'b');
      const cleared = await one.hold(renewed, 'a', async (hold) => {
        clock.advance(10_000);
        assert.equal(hold.lost, false);
        await other.clear(renewed, 'a');
        clock.advance(10_000);
        assert.equal(hold.lost, true);
        return hold;
      });
      assert.deepEqual([cleared.released, cleared.lost, kept.lost], [true, true, false]);
      assert.equal(one.counters().holdsLost, 1);
      await servers.kill(0);
      clock.advance(10_000);
      assert.deepEqual([kept.lost, one.counters().holdRenewalsFailed], [false, 1]);
      clock.advance(20_000);
      assert.deepEqual([kept.lost, one.counters().holdsLost], [true, 2]);
      for (let turn = 0; turn < 1_000 && lines.length < 2; turn++) await setImmediate();
      assert.match(lines.join('\n'), /a hold of the policy "concurrency 2 ttl 30 s" is lost: /);
      assert.match(lines.join('\n'), /a hold of the policy "concurrency 2 ttl 30 s" was not renewed: /);
      await Promise.all([one.close(), other.close()]);
    } finally {
      await servers.close();
    }
  });

  it('in memory are lost when nothing renewed them for their ttl', async () => {
    const clock = new ManualClock(1_700_000_000_000);
    const limiter = new Limiter({ clock });
    await limiter.hold('concurrency 1 ttl 30s', 'a', async (hold) => {
      for (let time = 0; time < 90_000; time += 10_000) clock.advance(10_000);
      assert.equal(hold.lost, false);
      clock.advance(30_000);
      assert.equal(hold.lost, true);
    });
  });

  it('are given back by close', async () => {
    const servers = await Servers.start('single');
    try {
      const one = new Limiter({ store: servers.url, timeoutMs: 20_000 });
      const other = new Limiter({ store: servers.url, timeoutMs: 20_000 });
      await one.hold(policy, 'a');
      await assert.rejects(other.hold(policy, 'a'), RateLimited);
      await one.close();
      await (await other.hold(policy, 'a')).release();
      await other.close();
    } finally {
      await servers.close();
    }
  });
});

describe('acquire', () => {
  it('admits waiting callers in the order they came', async () => {
    const clock = new ManualClock(1_700_000_000_000);
    const limiter = new Limiter({ clock });
    await limiter.check('fixed-window 1/s', 'a');
    const order = [];
    const waiting = [1, 2].map((name) => limiter.acquire('fixed-window 1/s', 'a').then(() => order.push(name)));
    for (let round = 0; order.length < 2 && round < 1_000; round++) {
      clock.advance(1_000);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await Promise.all(waiting);
    assert.deepEqual(order, [1, 2]);
  });

  it('is denied when it cannot be admitted in time', async () => {
    const limiter = new Limiter();
    await limiter.check('fixed-window 1/minute', 'a');
    assert.equal((await limiter.acquire('fixed-window 1/minute', 'a', { timeoutMs: 10 })).allowed, false);
    assert.equal((await limiter.acquire('fixed-window 1/minute', 'b', { timeoutMs: 10 })).allowed, true);
  });

  it('is cancelled by a signal', async () => {
    const limiter = new Limiter();
    await limiter.check('fixed-window 1/minute', 'a');
    const reason = new Error('enough');
    await assert.rejects(limiter.acquire('fixed-window 1/minute', 'a', { signal: AbortSignal.abort(reason) }), reason);
    const controller = new AbortController();
    const waits = limiter.acquire('fixed-window 1/minute', 'a', { signal: controller.signal });
    setTimeout(() => controller.abort(reason), 5);
    await assert.rejects(waits, reason);
    await limiter.clear('fixed-window 1/minute', 'a');
    // A cancelled caller does not delay the others.
    assert.ok(
      (await limiter.acquire('fixed-window 1/minute', 'a', { signal: controller.signal }).catch((e) => e)) === reason,
    );
    assert.ok((await limiter.acquire('fixed-window 1/minute', 'a')).allowed);
  });

  it('is rejected by close', async () => {
    const limiter = new Limiter();
    await limiter.check('fixed-window 1/minute', 'a');
    const waits = limiter.acquire('fixed-window 1/minute', 'a');
    await Promise.all([assert.rejects(waits, { code: 'closed' }), limiter.close()]);
    await limiter.close();
    for (const call of ['check', 'peek', 'clear', 'journal', 'hold', 'acquire']) {
      await assert.rejects(limiter[call]('5/s', 'k'), { code: 'closed' }, call);
    }
    await assert.rejects(limiter.ping(), { code: 'closed' });
  });
});
