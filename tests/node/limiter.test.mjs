// What only JavaScript can show of a limiter: promises, signals, disposal, wrapped functions. Rules are in the vectors.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, describe, it } from 'node:test';
import { inspect } from 'node:util';

import * as tidegate from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const { Decision, Hold, Limit, Limiter, ManualClock, Policy, RateLimited } = tidegate;

it('is one package, however it is loaded', () => {
  const required = createRequire(import.meta.url)('tidegate');
  for (const name of Object.keys(tidegate)) assert.equal(tidegate[name], required[name], name);
});

it('a Decision says what it says', async () => {
  const clock = new ManualClock(1_700_000_000_000);
  const limiter = new Limiter({ clock, policies: { login: 'fixed-window 2/minute; gcra 10/s' } });
  const decision = await limiter.check('login', 'alice');
  assert.ok(decision instanceof Decision);
  assert.deepEqual(decision.toJSON(), {
    allowed: true,
    policy: 'login',
    key: 'alice',
    cost: 1,
    limit: 2,
    remaining: 1,
    retryAfterMs: 0,
    resetAfterMs: 60_000,
    resetAt: new Date(1_700_000_060_000),
    delayMs: 0,
    limits: [
      {
        algorithm: 'fixed-window',
        limit: 2,
        periodMs: 60_000,
        remaining: 1,
        retryAfterMs: 0,
        resetAfterMs: 60_000,
        exceeded: false,
      },
      {
        algorithm: 'gcra',
        limit: 10,
        periodMs: 1_000,
        remaining: 9,
        retryAfterMs: 0,
        resetAfterMs: 100,
        exceeded: false,
      },
    ],
    source: 'store',
    shadow: false,
  });
  assert.match(inspect(decision), /^Decision \{\n? +allowed: true/);
  assert.equal((await limiter.check('login', 'alice', { cost: 3 })).retryAfterMs, null);
});

it('a policy is a name, a notation or a Policy', async () => {
  const policy = new Policy([new Limit('gcra', 1, { period: '1s', burst: 2 }), '5/3s'], { blockFor: '10m' });
  assert.equal(`${policy}`, 'gcra 1/s burst 2; 5/3s');
  const limiter = new Limiter({ policies: { named: policy } });
  assert.equal((await limiter.check(policy, 'a')).policy, `${policy}`);
  assert.equal((await limiter.check('named', 'a')).policy, 'named');
  assert.equal((await limiter.check('3 per minute', 'a')).policy, '3/minute');
});

it('costs and keys may be anything a caller writes', async () => {
  const limiter = new Limiter();
  assert.equal((await limiter.check('5/s', '')).remaining, 4);
  for (const key of ['a\0b', 'ü', '☂', '😀', 'x'.repeat(5_000), '☂'.repeat(20_000)]) {
    assert.equal((await limiter.check('2/minute', key)).remaining, 1, key.slice(0, 3));
    assert.equal((await limiter.check('2/minute', key)).remaining, 0, key.slice(0, 3));
  }
  for (const half of ['\ud83d', `a${'\udc00'}`, '\udc00\ud800', `${'k'.repeat(5_000)}\ud800`]) {
    for (const call of ['check', 'peek', 'clear', 'acquire', 'journal']) {
      await assert.rejects(limiter[call]('5/s', half), { code: 'key_invalid' }, call);
    }
  }
});

it('settles what a check took', async () => {
  const limiter = new Limiter();
  const policy = 'fixed-window 10/minute';
  const decision = await limiter.check(policy, 'a', { cost: 4 });
  await limiter.settle(decision, 1);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 9);
  await limiter.settle(decision, 4);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 9);
  const all = await limiter.checkAll([
    [policy, 'a'],
    [policy, 'b', 2],
  ]);
  assert.deepEqual([all.decisions.length, all.key], [2, 'a']);
  await limiter.settle(all, 3);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 6);
  assert.equal((await limiter.peek(policy, 'b')).remaining, 7);
  await assert.rejects(limiter.settle(decision, -1), { code: 'cost_invalid' });
});

describe('wrap', () => {
  it('limits a function', async () => {
    const limiter = new Limiter();
    const seen = [];
    function send(user, units) {
      seen.push([this, user, units]);
      return user.length;
    }
    const wrapped = limiter.wrap('fixed-window 3/minute', send, { key: (user) => user, cost: (_, units) => units });
    assert.equal(wrapped.name, 'send');
    const self = { wrapped };
    assert.equal(await self.wrapped('alice', 2), 5);
    await assert.rejects(wrapped('alice', 2), (error) => {
      assert.ok(error instanceof RateLimited && error.code === 'rate_limited');
      assert.equal(error.decision.key, 'alice');
      return true;
    });
    assert.equal(await wrapped('bob', 1), 3);
    assert.deepEqual(seen, [
      [self, 'alice', 2],
      [undefined, 'bob', 1],
    ]);
  });

  it('is loud about a key that is none', async () => {
    const wrapped = new Limiter().wrap('5/s', () => {}, { key: () => undefined });
    await assert.rejects(wrapped(), { code: 'key_invalid' });
  });
});

describe('holds', () => {
  const policy = 'concurrency 1';

  it('last as long as the function', async () => {
    const limiter = new Limiter();
    const said = await limiter.hold(policy, 'a', async (hold) => {
      assert.ok(hold instanceof Hold && hold.decision.allowed);
      await assert.rejects(limiter.hold(policy, 'a'), (error) => !error.decision.allowed);
      return 'done';
    });
    assert.equal(said, 'done');
    await assert.rejects(
      limiter.hold(policy, 'a', () => {
        throw new Error('mine');
      }),
      /mine/,
    );
    assert.equal((await limiter.peek(policy, 'a')).remaining, 1);
  });

  it('are disposed of', async () => {
    const limiter = new Limiter();
    const hold = await limiter.hold(policy, 'a');
    assert.equal((await limiter.peek(policy, 'a')).remaining, 0);
    await hold[Symbol.asyncDispose]();
    await hold.release();
    assert.equal((await limiter.peek(policy, 'a')).remaining, 1);
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
  it('waits, in order', async () => {
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

  it('is denied when there is not enough time', async () => {
    const limiter = new Limiter();
    await limiter.check('fixed-window 1/minute', 'a');
    assert.equal((await limiter.acquire('fixed-window 1/minute', 'a', { timeoutMs: 10 })).allowed, false);
    assert.equal((await limiter.acquire('fixed-window 1/minute', 'b', { timeoutMs: 10 })).allowed, true);
  });

  it('is given up by a signal', async () => {
    const limiter = new Limiter();
    await limiter.check('fixed-window 1/minute', 'a');
    const reason = new Error('enough');
    await assert.rejects(limiter.acquire('fixed-window 1/minute', 'a', { signal: AbortSignal.abort(reason) }), reason);
    const controller = new AbortController();
    const waits = limiter.acquire('fixed-window 1/minute', 'a', { signal: controller.signal });
    setTimeout(() => controller.abort(reason), 5);
    await assert.rejects(waits, reason);
    await limiter.clear('fixed-window 1/minute', 'a');
    // Whoever gave up stands in nobody's way.
    assert.ok(
      (await limiter.acquire('fixed-window 1/minute', 'a', { signal: controller.signal }).catch((e) => e)) === reason,
    );
    assert.ok((await limiter.acquire('fixed-window 1/minute', 'a')).allowed);
  });

  it('is settled by close', async () => {
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

describe('on Redis', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());
  const open = (options = {}) => new Limiter({ store: servers.url, timeoutMs: 20_000, ...options });

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

  it('a mixture of calls is answered to whom it concerns', async () => {
    const limiter = open({ prefix: 'mixed' });
    const calls = Array.from({ length: 600 }, (_, index) => {
      const key = `k${index}`;
      switch (index % 5) {
        case 0:
          return limiter
            .check('fixed-window 10/hour', key, { cost: 3 })
            .then((said) => said.remaining === 7 && said.key === key);
        case 1:
          return limiter.charge('fixed-window 10/hour', key, 20).then((said) => said.remaining === 0);
        case 2:
          return limiter
            .check('fixed-window 10/hour', key, { cost: 0 })
            .catch((error) => error.code === 'cost_invalid');
        case 3:
          return limiter.clear('fixed-window 10/hour', key).then((said) => said === undefined);
        default:
          return limiter
            .checkAll([
              ['fixed-window 10/hour', `${key}a`],
              ['fixed-window 5/hour', `${key}b`, 2],
            ])
            .then((said) => said.decisions[0].remaining === 9 && said.decisions[1].remaining === 3);
      }
    });
    assert.ok((await Promise.all(calls)).every(Boolean));
    await limiter.close();
  });

  it('close settles what is pending', async () => {
    const limiter = open({ prefix: 'close' });
    await limiter.ping();
    await servers.stop(0);
    const calls = Array.from({ length: 1_000 }, (_, index) => limiter.check('5/s', `${index}`));
    const settled = Promise.allSettled(calls);
    const closed = limiter.close();
    await servers.cont(0);
    await closed;
    for (const one of await settled) {
      assert.ok(one.status === 'fulfilled' || one.reason.code === 'closed', one.reason?.stack);
    }
  });

  it('a denial is repeated without asking, and ended by what gives back', async () => {
    const limiter = open({ prefix: 'deny' });
    const policy = 'fixed-window 2/minute';
    const calls = async () => {
      const said = await servers.command(['INFO', 'commandstats']);
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(said)?.[1] ?? 0);
    };
    const check = () => limiter.check(policy, 'a');
    await check();
    const decision = await check();
    const denied = await check();
    assert.equal(denied.source, 'store');
    const before = await calls();
    const again = await check();
    assert.equal(again.source, 'deny-cache');
    assert.equal(again.allowed, false);
    assert.ok(again.retryAfterMs <= denied.retryAfterMs && again.retryAfterMs > denied.retryAfterMs - 1_000);
    assert.equal(+again.resetAt, +denied.resetAt);
    assert.equal(again.limits[0].exceeded, true);
    assert.equal(await calls(), before);
    assert.equal((await limiter.check(policy, 'a', { cost: 2 })).source, 'store');
    for (const give of [
      () => limiter.refund(policy, 'a'),
      () => limiter.clear(policy, 'a'),
      () => limiter.settle(decision, 0),
    ]) {
      await give();
      assert.ok((await check()).allowed);
      while ((await check()).allowed);
      assert.equal((await check()).source, 'deny-cache');
    }
    await limiter.close();
  });

  it('denials that have to be counted or read are always asked about', async () => {
    const limiter = open({ prefix: 'always' });
    for (const policy of [
      new Policy('fixed-window 1/minute', { countDenied: true }),
      new Policy('fixed-window 2/minute', { journal: 5 }),
      new Policy('concurrency 1; fixed-window 1/minute'),
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
