// A limiter in memory: its arguments, its Decisions and wrapped functions. The vectors test the rules.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { it } from 'node:test';
import { inspect } from 'node:util';

import * as tidegate from 'tidegate';

const { Decision, Limit, Limiter, ManualClock, Policy } = tidegate;

it('is one package, however it is loaded', () => {
  const required = createRequire(import.meta.url)('tidegate');
  for (const name of Object.keys(tidegate)) assert.equal(tidegate[name], required[name], name);
});

it('a Decision has the fields of its check', async () => {
  const clock = new ManualClock(1_700_000_000_000);
  const limiter = new Limiter({ clock, policies: { login: 'fixed-window 2/minute; gcra 10/s' } });
  const decision = await limiter.check('login', 'alice');
  assert.ok(decision instanceof Decision);
  assert.deepEqual(decision.toJSON(), {
    allowed: true,
    policy: 'login',
    key: 'alice',
    cost: 1,
    granted: 1,
    limit: 2,
    remaining: 1,
    retryAfterMs: 0,
    nextAfterMs: 0,
    resetAfterMs: 60_000,
    resetAt: new Date(1_700_000_060_000),
    delayMs: 0,
    abnormal: false,
    overridden: false,
    learned: false,
    limits: [
      {
        algorithm: 'fixed-window',
        unit: null,
        cost: 1,
        limit: 2,
        periodMs: 60_000,
        remaining: 1,
        over: 0,
        retryAfterMs: 0,
        nextAfterMs: 0,
        resetAfterMs: 60_000,
        exceeded: false,
      },
      {
        algorithm: 'gcra',
        unit: null,
        cost: 1,
        limit: 10,
        periodMs: 1_000,
        remaining: 9,
        over: 0,
        retryAfterMs: 0,
        nextAfterMs: 0,
        resetAfterMs: 100,
        exceeded: false,
      },
    ],
    source: 'store',
    shadow: false,
    unavailable: false,
  });
  // A copy has the stored fields, and nothing of the inside. `toJSON` has all fields.
  const stored = { allowed: true, key: 'alice', cost: 1, decisions: [] };
  assert.deepEqual([{ ...decision }, structuredClone(decision)], [stored, stored]);
  assert.deepEqual(Object.keys(JSON.parse(JSON.stringify(decision))), Object.keys(decision.toJSON()));
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

it('a key may be any well-formed text', async () => {
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

it('a copy of a Decision knows whether it is allowed', async () => {
  const limiter = new Limiter();
  const [first, second] = [await limiter.check('1/minute', 'a'), await limiter.check('1/minute', 'a')];
  assert.deepEqual([{ ...first }.allowed, { ...second }.allowed], [true, false]);
  assert.deepEqual([first.toJSON().allowed, second.toJSON().allowed], [true, false]);
});

it('settle charges or refunds the difference to what a check consumed', async () => {
  const limiter = new Limiter();
  const policy = 'fixed-window 10/minute';
  const decision = await limiter.check(policy, 'a', { cost: 4 });
  await limiter.settle(decision, 1);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 9);
  await limiter.settle(await limiter.check(policy, 'a', { cost: 4 }), 4);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 5);
  const all = await limiter.checkAll([
    [policy, 'a'],
    [policy, 'b', 2],
  ]);
  assert.deepEqual([all.decisions.length, all.key], [2, 'a']);
  // With several entries, one number is for those that name a cost.
  await limiter.settle(all, 3);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 4);
  assert.equal((await limiter.peek(policy, 'b')).remaining, 7);
  await assert.rejects(limiter.settle(await limiter.check(policy, 'c'), -1), { code: 'cost_invalid' });
});
