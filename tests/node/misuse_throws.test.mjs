// A constructor or a call that returns no promise throws for an option that does not exist, or for a value of a wrong type.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { Limit, Limiter, lint, ManualClock, Policy, rollout } from 'tidegate';
import { claim, clientIp, header, rateLimit } from 'tidegate/express';

import { mistake } from './misuse.mjs';

const P = 'fixed-window 5/minute';
const limiter = new Limiter({ policies: { login: P } });
const fn = () => {};
const refuse = () => {
  throw new Error('from the handler of a proxy');
};
/** A Proxy that throws for every operation. */
const SILENT = new Proxy({}, Object.fromEntries(Object.getOwnPropertyNames(Reflect).map((name) => [name, refuse])));

/** The call, the code of its error, and a pattern of its message. */
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
  '{policies: null}': [() => new Limiter({ policies: null }), 'config_invalid', /policies .*an object.*null/],
  '{policies: []}': [() => new Limiter({ policies: ['5/s'] }), 'config_invalid', /policies .*an object.*an array/],
  '{policies: a Map}': [
    () => new Limiter({ policies: new Map([['a', '5/s']]) }),
    'config_invalid',
    /policies .*an object.*a Map/,
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
  '{store: null}': [() => new Limiter({ store: null }), 'config_invalid', /store .*URL.*null/],
  '{store: 5}': [() => new Limiter({ store: 5 }), 'config_invalid', /store .*URL.*5/],
  '{store: []}': [() => new Limiter({ store: [] }), 'config_invalid', /store/],
  '{store: [null]}': [() => new Limiter({ store: [null] }), 'config_invalid', /store .*URL.*null/],
  '{clock: null}': [() => new Limiter({ clock: null }), 'config_invalid', /clock .*a ManualClock.*null/],
  '{logger: 5}': [() => new Limiter({ logger: 5 }), 'config_invalid', /logger .*warn and info.*5/],
  '{logger: null}': [() => new Limiter({ logger: null }), 'config_invalid', /logger .*warn and info.*null/],
  '{onChange: {}}': [() => new Limiter({ onChange: {} }), 'config_invalid', /onChange .*a function.*an object/],
  '{prefix: null}': [() => new Limiter({ prefix: null }), 'config_invalid', /prefix .*a string.*null/],
  '{timeoutMs: null}': [() => new Limiter({ timeoutMs: null }), 'config_invalid', /timeoutMs .*a number.*null/],
  'new Policy()': [() => new Policy(), 'policy_invalid', /a notation or a Limit.*undefined/],
  'new Policy(null)': [() => new Policy(null), 'policy_invalid', /a notation or a Limit.*null/],
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
  'new ManualClock(null)': [() => new ManualClock(null), 'config_invalid', /milliseconds.*null/],
  "new ManualClock('x')": [() => new ManualClock('x'), 'config_invalid', /milliseconds.*"x"/],
  'new ManualClock({})': [() => new ManualClock({ now: 5 }), 'config_invalid', /milliseconds.*an object/],
  'new ManualClock(5n)': [() => new ManualClock(5n), 'config_invalid', /milliseconds.*5n/],
  'new ManualClock(a symbol)': [() => new ManualClock(Symbol('x')), 'config_invalid', /milliseconds.*a symbol/],
  'new ManualClock(NaN)': [() => new ManualClock(Number.NaN), 'config_invalid', /milliseconds.*NaN/],
  'advance()': [() => new ManualClock().advance(), 'config_invalid', /milliseconds.*undefined/],
  'advance(-1)': [() => new ManualClock().advance(-1), 'config_invalid', /milliseconds.*-1/],
  'advance(1n)': [() => new ManualClock().advance(1n), 'config_invalid', /milliseconds.*1n/],
  'waiting(unknown, k)': [() => limiter.waiting('nosuch', 'k'), 'policy_unknown', /nosuch/],
  'waiting(p, a long key)': [() => limiter.waiting(P, 'x'.repeat(70_000)), 'key_invalid', /70000 bytes/],
  'rollout()': [() => rollout(), 'config_invalid', /rollout .*URL.*undefined/],
  'rollout({})': [() => rollout({ from: 'a' }), 'config_invalid', /rollout .*URL.*an object/],
  "rollout(a, b, '5')": [() => rollout('memory://', 'memory://', '5'), 'config_invalid', /"5" percent/],
  'rollout(a, b, NaN)': [
    () => rollout('memory://', 'memory://', Number.NaN),
    'config_invalid',
    /NaN percent.*from 0 to 100/,
  ],
  'rollout(a, b, 101)': [() => rollout('memory://', 'memory://', 101), 'config_invalid', /101 percent.*from 0 to 100/],
  'rollout(a, b)': [() => rollout('memory://', 'memory://'), 'config_invalid', /undefined percent.*from 0 to 100/],
  'setRollout(null)': [() => limiter.setRollout(null), 'config_invalid', /null percent/],
  'policy()': [() => limiter.policy(), 'policy_invalid', /a name, a notation or a Policy.*undefined/],
  'waiting(p)': [() => limiter.waiting(P), 'key_invalid', /undefined/],
  'lint()': [() => lint(), 'config_invalid', /lint .*the path.*undefined/],
  'lint(a promise)': [() => lint(Promise.resolve({})), 'config_invalid', /lint .*the path.*a Promise/],
  'lint(a Map)': [() => lint(new Map([['a', '5/s']])), 'config_invalid', /lint .*the path.*a Map/],
  'lint(a limiter)': [() => lint(limiter), 'config_invalid', /lint .*the path.*a Limiter/],
  'new Policy(n, {valueOf})': [() => new Policy('5/s', { valueOf() {} }), 'policy_invalid', /no option valueOf/],
  'new Policy(n, {toString})': [() => new Policy('5/s', { toString() {} }), 'policy_invalid', /no option toString/],
  'new Policy(n, {constructor})': [
    () => new Policy('5/s', { constructor: 5 }),
    'policy_invalid',
    /no option constructor/,
  ],
  'new Limit(…, {valueOf})': [() => new Limit('gcra', 1, { valueOf() {} }), 'policy_invalid', /no option valueOf/],
  '{hasOwnProperty}': [() => new Limiter({ hasOwnProperty: 5 }), 'config_invalid', /no option hasOwnProperty/],
  'new Policy(n, {name: no prototype})': [
    () => new Policy('5/s', { name: Object.create(null) }),
    'policy_invalid',
    /name must be .*, not an object/,
  ],
  'new Limiter(a Proxy)': [() => new Limiter(SILENT), 'config_invalid', /an object.*an object of options/],
  'rateLimit(a Proxy)': [() => rateLimit(SILENT), 'config_invalid', /rateLimit|express/],
  'clientIp(a promise)': [() => clientIp(Promise.resolve({})), 'config_invalid', /clientIp: .*a Promise/],
  'clientIp(a Date)': [() => clientIp(new Date()), 'config_invalid', /clientIp: .*a Date/],
  'clientIp(a Map)': [() => clientIp(new Map([['ipv6Prefix', 48]])), 'config_invalid', /clientIp: .*a Map/],
  'header()': [() => header(), 'config_invalid', /header\(\) needs the name of a header.*undefined/],
  "header('X A')": [() => header('X A'), 'config_invalid', /header\(\) needs the name of a header.*"X A"/],
  "header('Å')": [() => header('Å'), 'config_invalid', /header\(\) needs the name of a header/],
  "header('X\\n')": [() => header('X\n'), 'config_invalid', /header\(\) needs the name of a header/],
  'header(a symbol)': [() => header(Symbol('x')), 'config_invalid', /header\(\) needs .*a symbol/],
  'header(a long text)': [() => header(' '.repeat(100_000)), 'config_invalid', /^.{0,250}\(100000 characters\)"$/],
  'claim()': [() => claim(), 'config_invalid', /claim\(\) needs the name of a claim.*undefined/],
  "claim('')": [() => claim(''), 'config_invalid', /claim\(\) needs the name of a claim/],
  'lint(5)': [() => lint(5), 'config_invalid', /lint .*the path.*5/],
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
  'wrap(p, null, {})': [() => limiter.wrap(P, null, { key: 'k' }), 'config_invalid', /wrap .*a function.*null/],
  'wrap(p, {…})': [() => limiter.wrap(P, { key: 'k' }), 'config_invalid', /wrap .*a function.*an object/],
  'wrap(null, fn)': [() => limiter.wrap(null, fn, { key: 'k' }), 'policy_invalid', /null/],
  'wrap: a notation': [() => limiter.wrap('5/minut', fn, { key: 'k' }), 'policy_invalid', /minut/],
  'wrap: a name': [() => limiter.wrap('logn', fn, { key: 'k' }), 'policy_unknown', /login/],
  'wrap: a class': [() => limiter.wrap(P, class A {}, { key: 'k' }), 'config_invalid', /wrap .*a class/],
};

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

describe('an error names the option, whatever its value is', () => {
  const values = { none: Object.create(null), proxy: SILENT, symbol: Symbol('secret'), text: 'secret '.repeat(50_000) };
  for (const name of ['headers', 'cost', 'skip', 'methods', 'onDenied', 'enabled', 'perMethod', 'holdUntil']) {
    for (const [kind, value] of Object.entries(values)) {
      it(`${name}: ${kind}`, () => {
        assert.throws(
          () => rateLimit({ limiter, policy: P, [name]: value }),
          (error) => {
            assert.match(error.code, /^(config|cost)_invalid$/, error.stack);
            assert.match(error.message, new RegExp(name));
            return error.message.length < 400;
          },
        );
      });
    }
  }
});
