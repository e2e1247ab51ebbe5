// A Decision is settled once, by the limiter that made it; metadata reaches the journal; queues have bounds.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, ManualClock, Policy } from 'tidegate';

const POLICIES = { p: '10/hour', q: '20/hour' };
const used = async (limiter) => 10 - (await limiter.peek('p', 'k')).remaining;
const config = (message) => ({ code: 'config_invalid', message });

test('a second settle is an error and changes nothing', async (t) => {
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  const decision = await limiter.check('p', 'k', { cost: 5 });
  await limiter.settle(decision, 2);
  await assert.rejects(limiter.settle(decision, 0), config(/"p" was settled before/));
  assert.equal(await used(limiter), 2);
});

test('a settle that failed may be made again', async (t) => {
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  const decision = await limiter.check('p', 'k', { cost: 5 });
  await assert.rejects(limiter.settle(decision, 1.5), { code: 'cost_invalid' });
  await limiter.settle(decision, 1);
  assert.equal(await used(limiter), 1);
});

test('each entry of checkAll is settled once', async (t) => {
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  const whole = await limiter.checkAll([
    ['p', 'k', 5],
    ['q', 'k', 5],
  ]);
  await limiter.settle(whole.decisions[1], 3);
  await assert.rejects(limiter.settle(whole, 0), config(/"q" was settled before/));
  assert.equal(await used(limiter), 5);
  await limiter.settle(whole.decisions[0], 4);
  assert.equal(await used(limiter), 4);
});

test('a Decision of another limiter is an error', async (t) => {
  const [one, other] = [new Limiter({ policies: POLICIES }), new Limiter({ policies: POLICIES })];
  t.after(() => Promise.all([one.close(), other.close()]));
  await assert.rejects(other.settle(await one.check('p', 'k'), 0), config(/another limiter/));
});

test('metadata of acquire, hold and checkAll is in the journal', async (t) => {
  const journal = 9;
  const policies = { p: new Policy('10/hour', { journal }), c: new Policy('concurrency 3', { journal }) };
  const limiter = new Limiter({ policies });
  t.after(() => limiter.close());
  await limiter.acquire('p', 'k', { meta: 'acquired' });
  await limiter.hold('c', 'k', { meta: 'held' }, () => {});
  await limiter.checkAll([{ policy: 'p', key: 'k', cost: 2, meta: new Uint8Array([65]) }, ['p', 'k', 1]]);
  assert.deepEqual(
    (await limiter.journal('p', 'k')).map(({ meta }) => meta),
    [null, 'A', 'acquired'],
  );
  assert.deepEqual(
    (await limiter.journal('c', 'k')).map(({ meta }) => meta),
    ['held'],
  );
  await assert.rejects(limiter.checkAll([{ policy: 'p', key: 'k', mta: 'x' }]), config(/mta/));
  await assert.rejects(limiter.checkAll([{ policy: 'p', key: 'k', meta: 5 }]), config(/meta/));
  await assert.rejects(limiter.hold('c', 'k', { mta: 'x' }), config(/mta/));
});

test('beyond the bounds acquire is denied at once', async () => {
  for (const options of [{ maxWaiting: 2 }, { maxWaitingPerKey: 2 }]) {
    const clock = new ManualClock(1_800_000_000_000);
    const limiter = new Limiter({ clock, ...options });
    await limiter.check('gcra 1/s', 'k');
    const waiters = [limiter.acquire('gcra 1/s', 'k'), limiter.acquire('gcra 1/s', 'k')];
    while (limiter.waiting('gcra 1/s', 'k') < 2) await new Promise(setImmediate);
    const denied = await limiter.acquire('gcra 1/s', 'k');
    assert.deepEqual([denied.allowed, denied.retryAfterMs], [false, 3000]);
    assert.equal(limiter.counters().acquiresRefused, 1);
    let open = waiters.length;
    for (const waiter of waiters) waiter.then(() => open--);
    while (open > 0) {
      clock.advance(1000);
      await new Promise(setImmediate);
    }
    await limiter.close();
  }
});

test('bounds are numbers from one on', () => {
  for (const name of ['maxWaiting', 'maxWaitingPerKey']) {
    for (const wrong of [0, -1, 1.5, Number.NaN, '5', null]) {
      assert.throws(() => new Limiter({ [name]: wrong }), { code: 'config_invalid' }, `${name}: ${wrong}`);
    }
  }
});
