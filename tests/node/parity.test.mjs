// The names of the contract, as Node spells them.

import assert from 'node:assert/strict';
import { it } from 'node:test';

import * as tidegate from 'tidegate';

const CALLS =
  'check peek charge refund settle checkAll acquire hold block unblock clear journal ping reload close wrap'.split(' ');
const FIELDS =
  'allowed policy key cost limit remaining retryAfterMs resetAfterMs resetAt delayMs limits source shadow'.split(' ');
const LIMIT = 'algorithm limit periodMs remaining retryAfterMs resetAfterMs exceeded'.split(' ');

it('a limiter has every call', () => {
  for (const call of CALLS) assert.equal(typeof tidegate.Limiter.prototype[call], 'function', call);
  assert.equal(typeof tidegate.Limiter.fromFile, 'function');
});

it('a Decision has every field', async () => {
  const decision = await new tidegate.Limiter().check('5/s', 'a');
  for (const field of [...FIELDS, 'decisions', 'unavailable']) assert.ok(field in decision, field);
  assert.deepEqual(Object.keys(decision.toJSON()), FIELDS);
  assert.deepEqual(Object.keys(decision.limits[0]), LIMIT);
  assert.throws(() => {
    decision.allowed = false;
  }, TypeError);
});

it('what the contract names is exported', () => {
  const names = 'Limiter Policy Limit Decision ManualClock TidegateError PolicyError StoreError RateLimited lint';
  for (const name of names.split(' ')) assert.equal(typeof tidegate[name], 'function', name);
});
