// A call that is given an option that does not exist, or a value of a wrong type, says which, what is near, and what it takes.
// What returns a promise rejects; what returns no promise throws. Nothing throws a TypeError of JavaScript.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { Limit, Limiter, lint, ManualClock, Policy, RateLimited, rollout, TidegateError } from 'tidegate';

const P = 'fixed-window 5/minute';
const HELD = 'concurrency 5';
const limiter = new Limiter({ policies: { login: P } });
const fn = () => {};

/** What is given, the code, and what the message says. */
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
  'check: {cost: null}': [(l) => l.check(P, 'k', { cost: null }), 'cost_invalid', /null.*a whole number/],
  "check: {cost: '5'}": [(l) => l.check(P, 'k', { cost: '5' }), 'cost_invalid', /"5".*a whole number/],
  'check: {cost: 0}': [(l) => l.check(P, 'k', { cost: 0 }), 'cost_invalid', /0/],
  'check: {cost: 1.5}': [(l) => l.check(P, 'k', { cost: 1.5 }), 'cost_invalid', /1\.5/],
  'check: {cost: 5n}': [(l) => l.check(P, 'k', { cost: 5n }), 'cost_invalid', /5n/],
  'check: {cost: NaN}': [(l) => l.check(P, 'k', { cost: Number.NaN }), 'cost_invalid', /NaN/],
  'check: {meta: null}': [(l) => l.check(P, 'k', { meta: null }), 'config_invalid', /meta .*null.*text or bytes/],
  'check: {meta: {}}': [(l) => l.check(P, 'k', { meta: {} }), 'config_invalid', /meta .*text or bytes/],
  'check: no key': [(l) => l.check(P), 'key_invalid', /undefined.*a string/],
  'check: null as key': [(l) => l.check(P, null), 'key_invalid', /null.*a string/],
  'check: a number as key': [(l) => l.check(P, 7, { cost: 1 }), 'key_invalid', /7.*a string/],
  'check: null as policy': [(l) => l.check(null, 'k'), 'policy_invalid', /null.*a name, a notation or a Policy/],
  'peek(p, k, 5)': [(l) => l.peek(P, 'k', 5), 'config_invalid', /peek .*an object of options/],
  'peek(p, k, null)': [(l) => l.peek(P, 'k', null), 'config_invalid', /peek .*null/],
  'peek: {costs}': [
    (l) => l.peek(P, 'k', { costs: 5 }),
    'config_invalid',
    /peek has no option costs; did you mean cost\?/,
  ],
  'peek: {cost: null}': [(l) => l.peek(P, 'k', { cost: null }), 'cost_invalid', /null/],
  'charge(p, k)': [(l) => l.charge(P, 'k'), 'cost_invalid', /undefined.*a whole number/],
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
  'settle(null, 5)': [(l) => l.settle(null, 5), 'config_invalid', /settle .*null.*a Decision/],
  'settle(undefined)': [(l) => l.settle(), 'config_invalid', /settle .*undefined.*a Decision/],
  'settle({…}, 5)': [(l) => l.settle({ allowed: true, decisions: [] }, 5), 'config_invalid', /settle .*a Decision/],
  'settle(d)': [async (l) => l.settle(await l.check(P, 's')), 'cost_invalid', /undefined/],
  'settle(d, {cost})': [async (l) => l.settle(await l.check(P, 's'), { cost: 5 }), 'cost_invalid', /an object/],
  'checkAll()': [(l) => l.checkAll(), 'config_invalid', /checkAll .*undefined.*a list of entries/],
  'checkAll(null)': [(l) => l.checkAll(null), 'config_invalid', /checkAll .*null.*a list of entries/],
  'checkAll(5)': [(l) => l.checkAll(5), 'config_invalid', /checkAll .*5.*a list of entries/],
  "checkAll('login')": [(l) => l.checkAll('login'), 'config_invalid', /checkAll .*"login".*a list of entries/],
  'checkAll({})': [(l) => l.checkAll({}), 'config_invalid', /checkAll .*an object.*a list of entries/],
  'checkAll([null])': [(l) => l.checkAll([null]), 'config_invalid', /entry 1 .*null.*\[policy, key\]/],
  "checkAll(['login', 'k'])": [
    (l) => l.checkAll(['login', 'k']),
    'config_invalid',
    /entry 1 .*"login".*\[policy, key\]/,
  ],
  'checkAll: the second': [(l) => l.checkAll([[P, 'k'], 5]), 'config_invalid', /entry 2 .*5.*\[policy, key\]/],
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
    /timeoutMs .*null.*milliseconds/,
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
    /signal .*AbortController.*an AbortSignal/,
  ],
  'acquire: {signal: null}': [
    (l) => l.acquire(P, 'k', { signal: null }),
    'config_invalid',
    /signal .*null.*an AbortSignal/,
  ],
  'acquire: {cost: null}': [(l) => l.acquire(P, 'k', { cost: null }), 'cost_invalid', /null/],
  'hold(p, k, null)': [(l) => l.hold(HELD, 'k', null), 'config_invalid', /hold .*null.*an object of options/],
  'hold(p, k, null, fn)': [(l) => l.hold(HELD, 'k', null, fn), 'config_invalid', /hold .*null.*an object of options/],
  'hold(p, k, 5)': [(l) => l.hold(HELD, 'k', 5), 'config_invalid', /hold .*5.*an object of options/],
  'hold(p, k, {}, 5)': [(l) => l.hold(HELD, 'k', {}, 5), 'config_invalid', /hold .*5.*a function/],
  'hold(p, k, {}, null)': [(l) => l.hold(HELD, 'k', {}, null), 'config_invalid', /hold .*null.*a function/],
  'hold(p, k, fn, {})': [(l) => l.hold(HELD, 'k', fn, {}), 'config_invalid', /hold .*its function last/],
  'hold: {ttl}': [(l) => l.hold(HELD, 'k', { ttl: 5 }, fn), 'config_invalid', /hold has no option ttl/],
  'hold: {costs}': [
    (l) => l.hold(HELD, 'k', { costs: 5 }),
    'config_invalid',
    /hold has no option costs; did you mean cost\?/,
  ],
  'hold: a controller': [(l) => l.hold(HELD, 'k', { signal: {} }), 'config_invalid', /signal .*an AbortSignal/],
  'block(p, k)': [(l) => l.block(P, 'k'), 'config_invalid', /block .*undefined.*milliseconds/],
  'block(p, k, null)': [(l) => l.block(P, 'k', null), 'config_invalid', /block .*null.*milliseconds/],
  "block(p, k, '10m')": [(l) => l.block(P, 'k', '10m'), 'config_invalid', /block .*"10m".*milliseconds/],
  'block(p, k, {ms})': [(l) => l.block(P, 'k', { ms: 5 }), 'config_invalid', /block .*an object.*milliseconds/],
  'block: NaN': [(l) => l.block(P, 'k', Number.NaN), 'config_invalid', /block .*NaN/],
  'unblock: no key': [(l) => l.unblock(P), 'key_invalid', /undefined/],
  'clear: null as key': [(l) => l.clear(P, null), 'key_invalid', /null/],
  'journal: no policy': [(l) => l.journal(), 'policy_invalid', /undefined.*a name, a notation or a Policy/],
  'fromFile()': [() => Limiter.fromFile(), 'config_invalid', /undefined.*its path/],
  'fromFile(path, 5)': [() => Limiter.fromFile('a.yaml', 5), 'config_invalid', /5.*an object of options/],
  'fromFile(path, null)': [() => Limiter.fromFile('a.yaml', null), 'config_invalid', /null.*an object of options/],
  'fromFile: {prefx}': [
    () => Limiter.fromFile('a.yaml', { prefx: 'x' }),
    'config_invalid',
    /prefx; did you mean prefix\?/,
  ],
};

const THROWS = {
  'new Limiter(url)': [() => new Limiter('redis://u:secret@h'), 'config_invalid', /a URL.*an object of options/],
  'new Limiter(5)': [() => new Limiter(5), 'config_invalid', /5.*an object of options/],
  'new Limiter([])': [() => new Limiter([]), 'config_invalid', /an array.*an object of options/],
  '{polices}': [
    () => new Limiter({ polices: {} }),
    'config_invalid',
    /no option polices; did you mean policies\?.* store, policies/,
  ],
  '{on_store_error}': [() => new Limiter({ on_store_error: 'open' }), 'config_invalid', /did you mean onStoreError\?/],
  '{timeout}': [() => new Limiter({ timeout: 5 }), 'config_invalid', /did you mean timeoutMs\?/],
  '{policies: null}': [() => new Limiter({ policies: null }), 'config_invalid', /policies .*null.*an object/],
  '{policies: []}': [() => new Limiter({ policies: ['5/s'] }), 'config_invalid', /policies .*an array.*an object/],
  '{policies: a Map}': [
    () => new Limiter({ policies: new Map([['a', '5/s']]) }),
    'config_invalid',
    /policies .*a Map.*an object/,
  ],
  '{policies: {a: null}}': [() => new Limiter({ policies: { a: null } }), 'policy_invalid', /policy a .*null/],
  '{policies: {a: {limit}}}': [
    () => new Limiter({ policies: { a: { limit: '5/s' } } }),
    'policy_invalid',
    /policy a .*limits/,
  ],
  '{policies: an option}': [
    () => new Limiter({ policies: { a: { limits: '5/s', shadw: true } } }),
    'policy_invalid',
    /policy a: .*shadw; did you mean shadow\?/,
  ],
  '{policies: a notation}': [() => new Limiter({ policies: { a: '5/minut' } }), 'policy_invalid', /policy a: /],
  '{store: null}': [() => new Limiter({ store: null }), 'config_invalid', /store .*null.*URL/],
  '{store: 5}': [() => new Limiter({ store: 5 }), 'config_invalid', /store .*5.*URL/],
  '{store: []}': [() => new Limiter({ store: [] }), 'config_invalid', /store/],
  '{store: [null]}': [() => new Limiter({ store: [null] }), 'config_invalid', /store .*null.*URL/],
  '{clock: null}': [() => new Limiter({ clock: null }), 'config_invalid', /clock .*null.*a ManualClock/],
  '{logger: 5}': [() => new Limiter({ logger: 5 }), 'config_invalid', /logger .*5.*warn and info/],
  '{logger: null}': [() => new Limiter({ logger: null }), 'config_invalid', /logger .*null.*warn and info/],
  '{onChange: {}}': [() => new Limiter({ onChange: {} }), 'config_invalid', /onChange .*an object.*a function/],
  '{prefix: null}': [() => new Limiter({ prefix: null }), 'config_invalid', /prefix .*null.*a string/],
  '{timeoutMs: null}': [() => new Limiter({ timeoutMs: null }), 'config_invalid', /timeoutMs .*null.*a number/],
  'new Policy()': [() => new Policy(), 'policy_invalid', /undefined.*a notation or a Limit/],
  'new Policy(null)': [() => new Policy(null), 'policy_invalid', /null.*a notation or a Limit/],
  'new Policy(n, null)': [() => new Policy('5/s', null), 'policy_invalid', /null.*an object of options/],
  'new Policy(n, 5)': [() => new Policy('5/s', 5), 'policy_invalid', /5.*an object of options/],
  "new Policy(n, 'name')": [() => new Policy('5/s', 'name'), 'policy_invalid', /"name".*an object of options/],
  'new Policy(n, true)': [() => new Policy('5/s', true), 'policy_invalid', /true.*an object of options/],
  'Policy: {shadw}': [() => new Policy('5/s', { shadw: true }), 'policy_invalid', /shadw; did you mean shadow\?/],
  'Policy: {count_denied}': [
    () => new Policy('5/s', { count_denied: true }),
    'policy_invalid',
    /did you mean countDenied\?/,
  ],
  'Policy: {blockFor: null}': [() => new Policy('5/s', { blockFor: null }), 'policy_invalid', /blockFor .*null/],
  'new Limit()': [() => new Limit(), 'policy_invalid', /algorithm .*undefined/],
  'new Limit(a, c, null)': [() => new Limit('gcra', 5, null), 'policy_invalid', /null.*an object of options/],
  'new Limit(a, c, 60)': [() => new Limit('gcra', 5, 60), 'policy_invalid', /60.*an object of options/],
  'Limit: {peroid}': [() => new Limit('gcra', 5, { peroid: '1s' }), 'policy_invalid', /peroid; did you mean period\?/],
  'new ManualClock(null)': [() => new ManualClock(null), 'config_invalid', /null.*milliseconds/],
  "new ManualClock('x')": [() => new ManualClock('x'), 'config_invalid', /"x".*milliseconds/],
  'new ManualClock({})': [() => new ManualClock({ now: 5 }), 'config_invalid', /an object.*milliseconds/],
  'new ManualClock(5n)': [() => new ManualClock(5n), 'config_invalid', /5n.*milliseconds/],
  'new ManualClock(a symbol)': [() => new ManualClock(Symbol('x')), 'config_invalid', /a symbol.*milliseconds/],
  'new ManualClock(NaN)': [() => new ManualClock(Number.NaN), 'config_invalid', /NaN.*milliseconds/],
  'advance()': [() => new ManualClock().advance(), 'config_invalid', /undefined.*milliseconds/],
  'advance(-1)': [() => new ManualClock().advance(-1), 'config_invalid', /-1.*milliseconds/],
  'advance(1n)': [() => new ManualClock().advance(1n), 'config_invalid', /1n.*milliseconds/],
  'rollout()': [() => rollout(), 'config_invalid', /rollout .*undefined.*URL/],
  'rollout({})': [() => rollout({ from: 'a' }), 'config_invalid', /rollout .*an object.*URL/],
  "rollout(a, b, '5')": [() => rollout('memory://', 'memory://', '5'), 'config_invalid', /"5" percent/],
  'rollout(a, b, NaN)': [
    () => rollout('memory://', 'memory://', Number.NaN),
    'config_invalid',
    /NaN percent.*from 0 to 100/,
  ],
  'rollout(a, b, 101)': [() => rollout('memory://', 'memory://', 101), 'config_invalid', /101 percent.*from 0 to 100/],
  'rollout(a, b)': [() => rollout('memory://', 'memory://'), 'config_invalid', /undefined percent.*from 0 to 100/],
  'setRollout(null)': [() => limiter.setRollout(null), 'config_invalid', /null percent/],
  'policy()': [() => limiter.policy(), 'policy_invalid', /undefined.*a name, a notation or a Policy/],
  'waiting(p)': [() => limiter.waiting(P), 'key_invalid', /undefined/],
  'lint()': [() => lint(), 'config_invalid', /undefined.*its path/],
  'lint(5)': [() => lint(5), 'config_invalid', /5.*its path/],
  'wrap(p, fn)': [() => limiter.wrap(P, fn), 'config_invalid', /wrap .*undefined.*an object of options/],
  'wrap(p, fn, null)': [() => limiter.wrap(P, fn, null), 'config_invalid', /wrap .*null.*an object of options/],
  "wrap(p, fn, 'k')": [() => limiter.wrap(P, fn, 'k'), 'config_invalid', /wrap .*"k".*an object of options/],
  'wrap: {}': [() => limiter.wrap(P, fn, {}), 'config_invalid', /wrap .*needs a key/],
  'wrap: {kee}': [() => limiter.wrap(P, fn, { kee: 'k' }), 'config_invalid', /kee; did you mean key\?/],
  'wrap: {key, costs}': [
    () => limiter.wrap(P, fn, { key: 'k', costs: 5 }),
    'config_invalid',
    /costs; did you mean cost\?/,
  ],
  'wrap: {key: null}': [() => limiter.wrap(P, fn, { key: null }), 'key_invalid', /null/],
  'wrap: {key: 5}': [() => limiter.wrap(P, fn, { key: 5 }), 'key_invalid', /5/],
  'wrap: {cost: null}': [() => limiter.wrap(P, fn, { key: 'k', cost: null }), 'cost_invalid', /null/],
  'wrap: {cost: 0}': [() => limiter.wrap(P, fn, { key: 'k', cost: 0 }), 'cost_invalid', /0/],
  'wrap: {cost: 1.5}': [() => limiter.wrap(P, fn, { key: 'k', cost: 1.5 }), 'cost_invalid', /1\.5/],
  'wrap(p, null, {})': [() => limiter.wrap(P, null, { key: 'k' }), 'config_invalid', /wrap .*null.*a function/],
  'wrap(p, {…})': [() => limiter.wrap(P, { key: 'k' }), 'config_invalid', /wrap .*an object.*a function/],
  'wrap(null, fn)': [() => limiter.wrap(null, fn, { key: 'k' }), 'policy_invalid', /null/],
  'wrap: a notation': [() => limiter.wrap('5/minut', fn, { key: 'k' }), 'policy_invalid', /minut/],
  'wrap: a name': [() => limiter.wrap('logn', fn, { key: 'k' }), 'policy_unknown', /login/],
  'wrap: a class': [() => limiter.wrap(P, class A {}, { key: 'k' }), 'config_invalid', /wrap .*a class/],
};

/** Says what is wrong about an error, if anything is. */
function mistake(error, code, says) {
  if (!(error instanceof TidegateError)) return `${error?.stack ?? error}`;
  if (error.code !== code) return `${error.code}: ${error.message}`;
  if (!says.test(error.message)) return `does not match ${says}: ${error.message}`;
  return error.message.includes('secret') ? `shows a secret: ${error.message}` : undefined;
}

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
      // Nothing was consumed of the policies that these calls name, except by the checks that `settle` is given.
      assert.equal((await fresh.peek(P, 'k')).remaining, 5);
      assert.equal((await fresh.peek(HELD, 'k')).remaining, 5);
    });
  }
});

describe('a call that returns no promise throws', () => {
  for (const [name, [call, code, says]] of Object.entries(THROWS)) {
    it(name, () => {
      let error;
      try {
        call();
      } catch (thrown) {
        error = thrown;
      }
      assert.equal(mistake(error, code, says), undefined);
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
  assert.equal(RateLimited.prototype.name, 'RateLimited');
});
