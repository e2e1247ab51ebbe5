// The public names in Node's spelling. They are the same as those of the Python package, which are read from its stubs.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';

import * as tidegate from 'tidegate';

const { Decision, Hold, Limit, Limiter, ManualClock, Policy } = tidegate;

const CALLS =
  'check peek charge refund settle checkAll acquire hold block unblock override overrides clear journal ping reload stats close wrap'.split(
    ' ',
  );
const FIELDS =
  'allowed policy key cost granted limit remaining retryAfterMs nextAfterMs resetAfterMs resetAt delayMs limits source shadow unavailable abnormal overridden learned'.split(
    ' ',
  );
const LIMIT = 'algorithm periodMs unit cost limit remaining over retryAfterMs nextAfterMs resetAfterMs exceeded'.split(
  ' ',
);

it('a limiter has every call', () => {
  for (const call of CALLS) assert.equal(typeof Limiter.prototype[call], 'function', call);
  assert.equal(typeof Limiter.fromFile, 'function');
});

it('a Decision has every field', async () => {
  const decision = await new Limiter().check('5/s', 'a');
  for (const field of [...FIELDS, 'decisions']) assert.ok(field in decision, field);
  assert.deepEqual(Object.keys(decision.toJSON()), FIELDS);
  assert.deepEqual(Object.keys(decision.limits[0]), LIMIT);
  assert.throws(() => {
    decision.remaining = 0;
  }, TypeError);
});

it('every public name is exported', () => {
  const names =
    'Limiter Policy Limit Decision ManualClock TidegateError PolicyError StoreError RateLimited lint rollout';
  for (const name of names.split(' ')) assert.equal(typeof tidegate[name], 'function', name);
});

// Python's stubs are generated from its compiled module, and its own tests compare the two.
const source = (name) =>
  readFileSync(new URL(`../../bindings-python/python/tidegate/${name}`, import.meta.url), 'utf8');
const stubs = source('_tidegate.pyi');
const options = source('_options.py');

/** The text of a class, and its bases. */
function classOf(name, text = stubs) {
  const found = new RegExp(`^class ${name}(?:\\((?:(\\w+), .*|Generic\\[Name\\])\\))?:\n((?: .*\n|\n)+)`, 'm').exec(
    text,
  );
  assert.ok(found, `there is no class ${name}`);
  return { base: found[1], body: found[2] };
}

/** The public methods and properties of a class. */
const namesOf = (kind) => [...classOf(kind).body.matchAll(/^ {4}def ([a-z]\w*)\(/gm)].map(([, name]) => name);

/** The fields of a typed dict, those of its base last. */
function fieldsOf(name) {
  if (name === undefined || name === 'TypedDict') return [];
  const { base, body } = classOf(name, options);
  return [...[...body.matchAll(/^ {4}(\w+): /gm)].map(([, field]) => field), ...fieldsOf(base)];
}

/** The parameters of its constructor. */
function parametersOf(kind) {
  const signature = /^ {4}def __new__\(([\s\S]*?)\) ->/m.exec(classOf(kind).body)[1];
  const parameters = [...signature.matchAll(/(\w+): (?:Unpack\[(\w+)\])?/g)];
  return parameters.flatMap(([, name, unpacked]) => (unpacked === undefined ? [name] : fieldsOf(unpacked)));
}

const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

/** Python's names that differ in Node: durations name their unit, and some words belong to one language. */
const RENAMED = {
  Limiter: { limit: 'wrap', to_async: undefined, timeout: 'timeoutMs', deny_cache: 'denyCacheMs', watch: 'watchMs' },
  Decision: {
    delay: 'delayMs',
    reset_after: 'resetAfterMs',
    retry_after: 'retryAfterMs',
    next_after: 'nextAfterMs',
    as_dict: 'toJSON',
  },
  // Words of the notation that Python has as keywords.
  Limit: { period: 'periodMs', from_: 'from', in_: 'in' },
  Policy: { block_for: 'blockForMs', forgive: 'forgiveMs', max_hold: 'maxHoldMs' },
  Hold: {},
  ManualClock: {},
};

function inNode(kind, name) {
  return name in RENAMED[kind] ? RENAMED[kind][name] : camel(name);
}

for (const [name, kind] of Object.entries({ Decision, Hold, Limit, Limiter, ManualClock, Policy })) {
  it(`${name} has what Python's has`, async () => {
    const limiter = new Limiter();
    const one = name === 'Decision' ? await limiter.check('5/s', 'a') : kind.prototype;
    const names = namesOf(name);
    assert.ok(names.length > 1);
    for (const python of names) {
      const ours = inNode(name, python);
      if (ours === undefined) continue;
      const own = python === 'decision' && name === 'Hold' ? await limiter.hold('concurrency 1', 'a') : one;
      assert.ok(ours in own || ours in kind, `${name} has no ${ours}, which Python calls ${python}`);
    }
  });
}

it('a limiter takes the options of Python', () => {
  const given = {
    store: 'memory://',
    policies: { a: '5/s', b: { limits: ['5/s', new Limit('gcra', 1, { period: '1s' })], journal: 3 } },
    prefix: 'p',
    keySecret: 'a secret of the tests',
    timeoutMs: 100,
    onStoreError: 'open',
    denyCacheMs: 0,
    maxWaiting: 5,
    maxWaitingPerKey: 5,
    onChange: () => {},
    onNearLimit: () => {},
    nearLimit: 0.9,
    watchMs: 0,
    clock: new ManualClock(),
    logRefusals: true,
  };
  assert.deepEqual(
    Object.keys(given),
    parametersOf('Limiter').map((name) => inNode('Limiter', name)),
  );
  assert.equal(new Limiter(given).policy('b').journal, 3);
});

it('a policy and a limit take the options of Python', () => {
  const policy = {
    name: 'n',
    onStoreError: 'open',
    shadow: true,
    blockFor: '1s',
    forgive: '2s',
    countDenied: true,
    journal: 3,
  };
  // Denials that count cannot lease, so no policy has all options.
  assert.deepEqual(
    ['limits', ...Object.keys(policy), 'lease', 'priorities', 'maxHold', 'overrides'],
    parametersOf('Policy').map(camel),
  );
  assert.equal(new Policy('5/s', { name: 'n', lease: 2 }).lease, 2);
  assert.throws(() => new Policy('5/s', { ...policy, lease: 2 }), /lease/);
  const made = new Policy('5/s; 9/m', policy);
  const { name, onStoreError, shadow, blockForMs, forgiveMs, countDenied, journal } = made;
  const lengths = { blockFor: `${blockForMs / 1000}s`, forgive: `${forgiveMs / 1000}s` };
  assert.deepEqual({ name, onStoreError, shadow, ...lengths, countDenied, journal }, policy);
  assert.deepEqual(made.limits.map(String), ['5/s', '9/minute']);
  assert.equal(String(made), '5/s; 9/minute');

  const words = ['algorithm', 'count', 'period', 'burst', 'initial', 'precision', 'unit', 'from_', 'in_'];
  assert.deepEqual(parametersOf('Limit'), words);
  const bucket = new Limit('token-bucket', 5, { period: '1s', burst: 7, initial: 3 });
  assert.deepEqual([bucket.burst, bucket.initial, bucket.capacity, bucket.precision], [7, 3, 7, undefined]);
  assert.equal(new Limit('sliding-window', 5, { period: 1000, precision: 8 }).precision, 8);
  assert.equal(String(new Limit('gcra', 5, { period: '1m', unit: 'Tokens' })), 'gcra 5 tokens/minute');
  const own = new Limit('calendar-window', 5, { period: 'month', from: 'Day 15 at 06:00', in: 'europe/berlin' });
  assert.deepEqual([own.from, own.in], ['day 15 at 06:00', 'Europe/Berlin']);
  assert.equal(String(own), 'calendar-window 5/month from day 15 at 06:00 in Europe/Berlin');
  const utc = new Limit('calendar-window', 5, { period: 'week', from: 'monday', in: 'UTC' });
  assert.deepEqual([utc.from, utc.in, String(utc)], [undefined, undefined, 'calendar-window 5/week']);
});
