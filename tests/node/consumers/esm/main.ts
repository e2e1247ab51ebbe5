import * as assert from 'node:assert/strict';

import {
  type Attempt,
  type CheckEntry,
  type Decision,
  Limit,
  Limiter,
  type LimiterOptions,
  type LimitState,
  ManualClock,
  Policy,
  PolicyError,
  RateLimited,
  TidegateError,
} from 'tidegate';

const clock = new ManualClock(1_700_000_000_000);
const options: LimiterOptions = {
  policies: { login: '2/minute', api: new Policy([new Limit('gcra', 100, { period: '1s' })], { journal: 5 }) },
  clock,
};

const limiter = new Limiter(options);
const decision: Decision = await limiter.check('login', 'alice', { cost: 1 });
const wait: number | null = decision.retryAfterMs;
const next: number | null = decision.nextAfterMs;
const part: number = (await limiter.check('login', 'bob', { cost: 5, partial: true })).granted;
const over: readonly number[] = decision.limits.map((limit) => limit.over);
const first: LimitState | undefined = decision.limits[0];
assert.equal(wait, 0);
assert.ok(next !== undefined && part === 2 && over.every((units) => units === 0));
assert.equal(first?.algorithm, 'sliding-window');

const entries: CheckEntry[] = [
  ['login', 'alice'],
  ['api', 'alice', 2],
];
assert.equal((await limiter.checkAll(entries)).decisions.length, 2);
const attempts: readonly Attempt[] = await limiter.journal('api', 'alice');
assert.equal(attempts.length, 1);

const greet = limiter.wrap('1/minute', (name: string, times: number) => name.repeat(times), {
  key: (name, times) => `${name}${times.toFixed()}`,
});
const greeting: string = await greet('a', 2);
assert.equal(greeting, 'aa');
await assert.rejects(greet('a', 2), (error: unknown) => error instanceof RateLimited && !error.decision.allowed);

const held: number = await limiter.hold('concurrency 1', 'a', async (hold) => hold.decision.limit);
assert.equal(held, 1);
{
  await using hold = await limiter.hold('concurrency 1', 'a', { signal: new AbortController().signal });
  assert.ok(hold.decision.allowed);
}
assert.throws(
  () => new Policy('5/x'),
  (error: unknown) => error instanceof PolicyError && error.code === 'policy_invalid' && error.place?.column === 3,
);
// @ts-expect-error a cost is a number
await assert.rejects(limiter.check('login', 'alice', { cost: '1' }), TidegateError);
// @ts-expect-error there is no such algorithm
assert.throws(() => new Limit('grca', 1, { period: 1 }));
await limiter.close();
console.log('esm');
