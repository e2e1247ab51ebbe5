// Keys with other limits than their policy.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limit, Limiter, Policy } from 'tidegate';
import { fields, problem } from 'tidegate/http';

test('a policy has keys with limits of their own', async () => {
  const overrides = { alice: '5/hour', 'org:7': [new Limit('gcra', 2, { period: '1s' }), '9/day'], internal: 'none' };
  const policy = new Policy('2/hour', { overrides, name: 'p' });
  assert.deepEqual(policy.overrides, { alice: '5/hour', 'org:7': 'gcra 2/s; 9/day', internal: 'none' });
  const limiter = new Limiter({ policies: { p: policy } });
  assert.equal((await limiter.check('p', 'alice')).limit, 5);
  assert.equal((await limiter.check('p', 'bob')).overridden, false);
  const free = await limiter.check('p', 'internal', { cost: 1000 });
  assert.deepEqual([free.allowed, free.granted, free.overridden], [true, 1000, true]);
  await limiter.close();
});

test('live', async () => {
  const limiter = new Limiter({ policies: { api: '2/hour' } });
  await limiter.override('api', 'alice', '1000/hour', { ttlMs: 60_000 });
  await limiter.override('api', 'bob', new Policy('gcra 1/s; 9/day'));
  await limiter.override('api', 'internal', 'none');
  assert.equal((await limiter.check('api', 'alice')).limit, 1000);
  const listed = await limiter.overrides('api');
  assert.deepEqual(
    listed.map(({ key, limits, expiresAt }) => [key, limits, expiresAt instanceof Date]),
    [
      ['alice', '1000/hour', true],
      ['bob', 'gcra 1/s; 9/day', false],
      ['internal', 'none', false],
    ],
  );
  await limiter.check('api', 'bob');
  const denied = await limiter.check('api', 'bob');
  assert.deepEqual([denied.allowed, denied.limits.length], [false, 2]);
  const announced = fields(denied);
  assert.match(announced['RateLimit-Policy'], /"api-1".*"api-2"/);
  assert.match(announced.RateLimit, /"api-1"/);
  assert.deepEqual(JSON.parse(problem(denied))['violated-policies'], ['api-1']);
  await limiter.override('api', 'alice', null);
  assert.equal((await limiter.check('api', 'alice')).limit, 2);
  await limiter.close();
});

test('what is no override is refused', async () => {
  const limiter = new Limiter({ policies: { api: '2/hour' } });
  for (const wrong of [
    '5/fortnight',
    [],
    5,
    {},
    undefined,
    'concurrency 3',
    new Policy(new Limit('token-bucket', 5, { period: '1s', initial: 0 })),
  ]) {
    await assert.rejects(limiter.override('api', 'alice', wrong), { code: 'policy_invalid' }, String(wrong));
  }
  await assert.rejects(limiter.override('api', 'alice', '5/s', { ttl: 5 }), { code: 'config_invalid' });
  assert.throws(() => new Policy('5/s', { overrides: ['alice'] }), { code: 'policy_invalid' });
  await limiter.close();
});
