// A call with an option that does not exist, or with a value of a wrong type, fails. The error names it, a near one, and the allowed
// values. Calls that return a promise reject. `misuse_throws.test.mjs` has those that throw. Nothing throws a TypeError of JavaScript.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { Limit, Limiter, Policy } from 'tidegate';

import { mistake } from './misuse.mjs';

const P = 'fixed-window 5/minute';
const HELD = 'concurrency 5';
const fn = () => {};

/** The call, the code of its error, and a pattern of its message. */
const CALLS = {
  'check(p, k, 5)': [(l) => l.check(P, 'k', 5), 'config_invalid', /check .*an object of options.*\{ cost: 5 \}/],
  "check(p, k, '5')": [(l) => l.check(P, 'k', '5'), 'config_invalid', /check .*an object of options/],
  'check(p, k, null)': [(l) => l.check(P, 'k', null), 'config_invalid', /check .*null.*an object of options/],
  'check(p, k, [5])': [(l) => l.check(P, 'k', [5]), 'config_invalid', /check .*an object of options/],
  'check(p, k, [])': [(l) => l.check(P, 'k', []), 'config_invalid', /check .*an object of options/],
  'check(p, k, a Map)': [(l) => l.check(P, 'k', new Map([['cost', 5]])), 'config_invalid', /check .*an object of opt/],
  'check(p, k, a function)': [(l) => l.check(P, 'k', fn), 'config_invalid', /check .*an object of options/],
  'check: {costs}': [(l) => l.check(P, 'k', { costs: 5 }), 'config_invalid', /no option costs; did you mean cost\?/],
  'check: {cost, mata}': [
    (l) => l.check(P, 'k', { cost: 5, mata: 'x' }),
    'config_invalid',
    /mata; did you mean meta\?/,
  ],
  'check: inherited': [(l) => l.check(P, 'k', Object.create({ costs: 5 })), 'config_invalid', /no option costs/],
  'check: {cost: null}': [(l) => l.check(P, 'k', { cost: null }), 'cost_invalid', /a whole number.*null/],
  "check: {cost: '5'}": [(l) => l.check(P, 'k', { cost: '5' }), 'cost_invalid', /a whole number.*"5"/],
  'check: {cost: 0}': [(l) => l.check(P, 'k', { cost: 0 }), 'cost_invalid', /0/],
  'check: {cost: 1.5}': [(l) => l.check(P, 'k', { cost: 1.5 }), 'cost_invalid', /1\.5/],
  'check: {cost: 5n}': [(l) => l.check(P, 'k', { cost: 5n }), 'cost_invalid', /5n/],
  'check: {cost: NaN}': [(l) => l.check(P, 'k', { cost: Number.NaN }), 'cost_invalid', /NaN/],
  'check: {meta: null}': [(l) => l.check(P, 'k', { meta: null }), 'config_invalid', /meta .*text or bytes.*null/],
  'check: {meta: {}}': [(l) => l.check(P, 'k', { meta: {} }), 'config_invalid', /meta .*text or bytes/],
  'check: no key': [(l) => l.check(P), 'key_invalid', /a string.*undefined/],
  'check: null as key': [(l) => l.check(P, null), 'key_invalid', /a string.*null/],
  'check: a number as key': [(l) => l.check(P, 7, { cost: 1 }), 'key_invalid', /a string.*7/],
  'check: null as policy': [(l) => l.check(null, 'k'), 'policy_invalid', /a name, a notation or a Policy.*null/],
  'peek(p, k, 5)': [(l) => l.peek(P, 'k', 5), 'config_invalid', /peek .*an object of options/],
  'check: {cost: Infinity}': [(l) => l.check(P, 'k', { cost: Infinity }), 'cost_invalid', /cost of Infinity is/],
  'block(p, k, Infinity)': [(l) => l.block(P, 'k', Infinity), 'config_invalid', /must be .*, not Infinity/],
  'peek(p, k, null)': [(l) => l.peek(P, 'k', null), 'config_invalid', /peek .*null/],
  'peek: {costs}': [
    (l) => l.peek(P, 'k', { costs: 5 }),
    'config_invalid',
    /peek has no option costs; did you mean cost\?/,
  ],
  'peek: {cost: null}': [(l) => l.peek(P, 'k', { cost: null }), 'cost_invalid', /null/],
  'charge(p, k)': [(l) => l.charge(P, 'k'), 'cost_invalid', /a whole number.*undefined/],
  'charge(p, k, null)': [(l) => l.charge(P, 'k', null), 'cost_invalid', /null/],
  "charge(p, k, '5')": [(l) => l.charge(P, 'k', '5'), 'cost_invalid', /"5"/],
  'charge(p, k, [5])': [(l) => l.charge(P, 'k', [5]), 'cost_invalid', /an array/],
  'charge: {costs}': [
    (l) => l.charge(P, 'k', { costs: 5 }),
    'config_invalid',
    /charge has no option costs; did you mean cost/,
  ],
  'charge: {}': [(l) => l.charge(P, 'k', {}), 'cost_invalid', /undefined/],
  'refund(p, k, null)': [(l) => l.refund(P, 'k', null), 'cost_invalid', /null/],
  "refund(p, k, '5')": [(l) => l.refund(P, 'k', '5'), 'cost_invalid', /"5"/],
  'refund(p, k, fn)': [(l) => l.refund(P, 'k', fn), 'cost_invalid', /a function/],
  'refund: {costs}': [
    (l) => l.refund(P, 'k', { costs: 5 }),
    'config_invalid',
    /refund has no option costs; did you mean cost/,
  ],
  'refund: {cost: null}': [(l) => l.refund(P, 'k', { cost: null }), 'cost_invalid', /null/],
  'settle(null, 5)': [(l) => l.settle(null, 5), 'config_invalid', /settle .*a Decision.*null/],
  'settle(undefined)': [(l) => l.settle(), 'config_invalid', /settle .*a Decision.*undefined/],
  'settle({…}, 5)': [(l) => l.settle({ allowed: true, decisions: [] }, 5), 'config_invalid', /settle .*a Decision/],
  'settle(d)': [async (l) => l.settle(await l.check(P, 's')), 'cost_invalid', /undefined/],
  'settle(d, {cost})': [
    async (l) => l.settle(await l.check(P, 's'), { cost: 5 }),
    'cost_invalid',
    /"cost".*not a policy/,
  ],
  'checkAll()': [(l) => l.checkAll(), 'config_invalid', /checkAll .*a list of entries.*undefined/],
  'checkAll(null)': [(l) => l.checkAll(null), 'config_invalid', /checkAll .*a list of entries.*null/],
  'checkAll(5)': [(l) => l.checkAll(5), 'config_invalid', /checkAll .*a list of entries.*5/],
  "checkAll('login')": [(l) => l.checkAll('login'), 'config_invalid', /checkAll .*a list of entries.*"login"/],
  'checkAll({})': [(l) => l.checkAll({}), 'config_invalid', /checkAll .*a list of entries.*an object/],
  'checkAll([null])': [(l) => l.checkAll([null]), 'config_invalid', /entry 1 .*\[policy, key\].*null/],
  "checkAll(['login', 'k'])": [
    (l) => l.checkAll(['login', 'k']),
    'config_invalid',
    /entry 1 .*\[policy, key\].*"login"/,
  ],
  'checkAll: the second': [(l) => l.checkAll([[P, 'k'], 5]), 'config_invalid', /entry 2 .*\[policy, key\].*5/],
  'checkAll: five values': [
    (l) => l.checkAll([[P, 'k', 1, 'x', 'y']]),
    'config_invalid',
    /entry 1 .*5 values.*\[policy, key/,
  ],
  'checkAll: null as cost': [(l) => l.checkAll([[P, 'k', null]]), 'cost_invalid', /null/],
  "checkAll: '5' as cost": [(l) => l.checkAll([[P, 'k', '5']]), 'cost_invalid', /"5"/],
  'checkAll: no key': [(l) => l.checkAll([[P]]), 'key_invalid', /undefined/],
  'acquire(p, k, null)': [(l) => l.acquire(P, 'k', null), 'config_invalid', /acquire .*null.*an object of options/],
  'acquire(p, k, 5000)': [(l) => l.acquire(P, 'k', 5_000), 'config_invalid', /acquire .*5000.*an object of options/],
  'acquire: {timeout}': [
    (l) => l.acquire(P, 'k', { timeout: 5 }),
    'config_invalid',
    /no option timeout; did you mean timeoutMs\?/,
  ],
  'acquire: {timeoutMs: null}': [
    (l) => l.acquire(P, 'k', { timeoutMs: null }),
    'config_invalid',
    /timeoutMs .*milliseconds.*null/,
  ],
  "acquire: {timeoutMs: '5'}": [(l) => l.acquire(P, 'k', { timeoutMs: '5' }), 'config_invalid', /timeoutMs .*"5"/],
  'acquire: {timeoutMs: NaN}': [
    (l) => l.acquire(P, 'k', { timeoutMs: Number.NaN }),
    'config_invalid',
    /timeoutMs .*NaN/,
  ],
  'acquire: {timeoutMs: -1}': [(l) => l.acquire(P, 'k', { timeoutMs: -1 }), 'config_invalid', /timeoutMs .*-1/],
  'acquire: a controller': [
    (l) => l.acquire(P, 'k', { signal: new AbortController() }),
    'config_invalid',
    /signal .*an AbortSignal.*AbortController/,
  ],
  'acquire: {signal: null}': [
    (l) => l.acquire(P, 'k', { signal: null }),
    'config_invalid',
    /signal .*an AbortSignal.*null/,
  ],
  'acquire: {cost: null}': [(l) => l.acquire(P, 'k', { cost: null }), 'cost_invalid', /null/],
  'hold(p, k, null)': [(l) => l.hold(HELD, 'k', null), 'config_invalid', /hold .*null.*an object of options/],
  'hold(p, k, null, fn)': [(l) => l.hold(HELD, 'k', null, fn), 'config_invalid', /hold .*null.*an object of options/],
  'hold(p, k, 5)': [(l) => l.hold(HELD, 'k', 5), 'config_invalid', /hold .*5.*an object of options/],
  'hold(p, k, {}, 5)': [(l) => l.hold(HELD, 'k', {}, 5), 'config_invalid', /hold .*a function.*5/],
  'hold(p, k, {}, null)': [(l) => l.hold(HELD, 'k', {}, null), 'config_invalid', /hold .*a function.*null/],
  'hold(p, k, fn, fn)': [(l) => l.hold(HELD, 'k', fn, fn), 'config_invalid', /hold .*an object of options/],
  'hold: {ttl}': [(l) => l.hold(HELD, 'k', { ttl: 5 }, fn), 'config_invalid', /hold has no option ttl/],
  'hold: {costs}': [
    (l) => l.hold(HELD, 'k', { costs: 5 }),
    'config_invalid',
    /hold has no option costs; did you mean cost\?/,
  ],
  'hold: a controller': [(l) => l.hold(HELD, 'k', { signal: {} }), 'config_invalid', /signal .*an AbortSignal/],
  'block(p, k)': [(l) => l.block(P, 'k'), 'config_invalid', /block .*milliseconds.*undefined/],
  'block(p, k, null)': [(l) => l.block(P, 'k', null), 'config_invalid', /block .*milliseconds.*null/],
  "block(p, k, '10m')": [(l) => l.block(P, 'k', '10m'), 'config_invalid', /block .*milliseconds.*"10m"/],
  'block(p, k, {ms})': [(l) => l.block(P, 'k', { ms: 5 }), 'config_invalid', /block .*milliseconds.*an object/],
  'block: NaN': [(l) => l.block(P, 'k', Number.NaN), 'config_invalid', /block .*NaN/],
  'unblock: no key': [(l) => l.unblock(P), 'key_invalid', /undefined/],
  'clear: null as key': [(l) => l.clear(P, null), 'key_invalid', /null/],
  'journal: no policy': [(l) => l.journal(), 'policy_invalid', /a name, a notation or a Policy.*undefined/],
  'fromFile()': [() => Limiter.fromFile(), 'config_invalid', /the path of a policy file.*undefined/],
  'fromFile(path, 5)': [() => Limiter.fromFile('a.yaml', 5), 'config_invalid', /5.*an object of options/],
  'fromFile(path, null)': [() => Limiter.fromFile('a.yaml', null), 'config_invalid', /null.*an object of options/],
  'fromFile: {prefx}': [
    () => Limiter.fromFile('a.yaml', { prefx: 'x' }),
    'config_invalid',
    /prefx; did you mean prefix\?/,
  ],
};

describe('a call that returns a promise rejects', () => {
  for (const [name, [call, code, says]] of Object.entries(CALLS)) {
    it(name, async () => {
      const fresh = new Limiter({ policies: { login: P } });
      let answer;
      try {
        answer = call(fresh);
      } catch (error) {
        assert.fail(`it throws: ${error.stack}`);
      }
      const error = await answer.then(
        (value) => assert.fail(`it is accepted: ${value?.constructor?.name}`),
        (error) => error,
      );
      assert.equal(mistake(error, code, says), undefined);
      // These calls consumed nothing of their policies, except for the checks that `settle` gets.
      assert.equal((await fresh.peek(P, 'k')).remaining, 5);
      assert.equal((await fresh.peek(HELD, 'k')).remaining, 5);
    });
  }
});

describe('what is right is accepted', () => {
  it('undefined is the default, for every option', async () => {
    const l = new Limiter({
      store: undefined,
      policies: undefined,
      prefix: undefined,
      timeoutMs: undefined,
      clock: undefined,
    });
    assert.equal((await l.check(P, 'k', undefined)).cost, 1);
    assert.equal((await l.check(P, 'k', { cost: undefined, meta: undefined })).cost, 1);
    assert.equal((await l.peek(P, 'k', { cost: undefined })).cost, 1);
    assert.equal((await l.refund(P, 'k', undefined)).cost, 1);
    assert.equal((await l.refund(P, 'k', { cost: undefined })).cost, 1);
    assert.equal((await l.acquire(P, 'k', { cost: undefined, timeoutMs: undefined, signal: undefined })).cost, 1);
    assert.equal(await l.hold(HELD, 'k', undefined, () => 7), 7);
    assert.equal(await l.hold(HELD, 'k', { cost: undefined, signal: undefined }, () => 7), 7);
    assert.equal((await l.checkAll([[P, 'k', undefined]])).cost, 1);
    assert.equal(await l.wrap(P, () => 7, { key: 'w', cost: undefined })(), 7);
    new Policy('5/s', undefined);
    new Limit('gcra', 5, { period: '1s', burst: undefined });
  });

  it('options of any kind of object', async () => {
    const l = new Limiter();
    const without = Object.assign(Object.create(null), { cost: 2 });
    class Options {
      cost = 2;
    }
    for (const options of [without, new Options(), Object.create({ cost: 2 }), Object.freeze({ cost: 2 })]) {
      assert.equal((await l.check(P, 'k', options)).cost, 2);
      await l.refund(P, 'k', options);
    }
    for (const empty of [{}, Object.create(null)]) assert.equal((await l.check(P, 'e', empty)).cost, 1);
  });

  it('charge and refund take a number or options', async () => {
    const l = new Limiter();
    assert.equal((await l.charge(P, 'k', 2)).remaining, 3);
    assert.equal((await l.charge(P, 'k', { cost: 2 })).remaining, 1);
    assert.equal((await l.refund(P, 'k', 2)).remaining, 3);
    assert.equal((await l.refund(P, 'k', { cost: 2 })).remaining, 5);
  });

  it('entries of any iterable', async () => {
    const l = new Limiter();
    const entries = new Map([[P, 'k']]);
    assert.equal((await l.checkAll(entries)).allowed, true);
    assert.equal((await l.checkAll(entries.entries())).remaining, 3);
  });

  it('an empty list of entries is an error that says so, in every way it can be written', async () => {
    for (const entries of [[], new Set()])
      await assert.rejects(new Limiter().checkAll(entries), { code: 'config_invalid' });
  });
});

it('what a key or a cost function returns is named with its function', async () => {
  const l = new Limiter();
  const send = () => {};
  const rejects = (options, code, says) =>
    assert.rejects(l.wrap(P, send, options)(), (error) => mistake(error, code, says) === undefined);
  await rejects({ key: () => undefined }, 'key_invalid', /key function of send returned undefined.*a string/);
  await rejects({ key: async () => 'k' }, 'key_invalid', /key function of send returned a Promise/);
  await rejects({ key: 'k', cost: () => '5' }, 'cost_invalid', /cost function of send returned "5".*a whole number/);
  await rejects({ key: 'k', cost: () => 0 }, 'cost_invalid', /0/);
  assert.equal((await l.peek(P, 'k')).remaining, 5);
});
