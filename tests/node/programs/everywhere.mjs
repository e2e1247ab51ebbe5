// Every runtime must be able to do this: load the package both ways, use both kinds of store, wait, and end.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

import { Limiter, ManualClock, Policy, RateLimited } from 'tidegate';

const required = createRequire(import.meta.url)('tidegate');
assert.equal(required.Limiter, Limiter);

for (const store of ['memory://', process.argv[2]]) {
  const limiter = new Limiter({ store, prefix: `everywhere${process.pid}`, timeoutMs: 20_000 });
  await limiter.ping();
  const keys = Array.from({ length: 1_000 }, (_, index) => `k${index % 100}☂`);
  const decisions = await Promise.all(keys.map((key) => limiter.check('fixed-window 5/hour', key)));
  assert.equal(decisions.filter((decision) => decision.allowed).length, 500, store);
  const policy = new Policy('5/hour', { journal: 2 });
  await limiter.check(policy, 'a', { meta: 'note' });
  assert.equal((await limiter.journal(policy, 'a'))[0].meta, 'note');
  const all = await limiter.checkAll([
    ['fixed-window 5/hour', 'k0☂'],
    ['5/hour', 'b'],
  ]);
  assert.deepEqual([all.allowed, all.key, all.decisions.length], [false, 'k0☂', 2]);
  await limiter.hold('concurrency 1', 'a', async () => {
    await assert.rejects(limiter.hold('concurrency 1', 'a'), RateLimited);
  });
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error('enough')), 5);
  await assert.rejects(limiter.acquire('0/hour', 'a', { signal: AbortSignal.abort(new Error('enough')) }), /enough/);
  await limiter.check('1/hour', 'w');
  await assert.rejects(limiter.acquire('1/hour', 'w', { signal: controller.signal }), /enough/);
  await assert.rejects(limiter.check('5/x', 'a'), { code: 'policy_invalid' });
  await limiter.close();
  await assert.rejects(limiter.check('5/s', 'a'), { code: 'closed' });
}
const clock = new ManualClock(1_700_000_000_000);
const limiter = new Limiter({ clock });
await limiter.check('fixed-window 1/minute', 'a');
assert.equal((await limiter.check('fixed-window 1/minute', 'a')).retryAfterMs, 60_000);
// It is not closed, because an open limiter keeps no process alive.
new Limiter({ store: process.argv[2] }).check('5/s', 'a').then(() => console.log('done'));
