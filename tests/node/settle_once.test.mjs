// A Decision is settled once, by the limiter that made it. Metadata reaches the journal, and queues have bounds.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import vm from 'node:vm';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { Servers } from '../servers/servers.mjs';

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

test('what is no number of units settles nothing', async (t) => {
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  const decision = await limiter.check('p', 'k', { cost: 5 });
  const wrong = {
    'a Promise': Promise.resolve(2),
    'a Date': new Date(),
    'a Set': new Set([2]),
    'a Number': new Number(2),
    'a Policy': new Policy('5/s'),
    'a ManualClock': new ManualClock(),
    undefined,
    null: null,
    '"2"': '2',
    'a function': () => 2,
  };
  for (const [shown, actual] of Object.entries(wrong)) {
    const message = new RegExp(`actual cost of "p" must be a whole number.*not ${shown}`);
    await assert.rejects(limiter.settle(decision, actual), { code: 'cost_invalid', message }, shown);
  }
  await limiter.settle(decision, vm.runInNewContext("new Map([['p', 2]])"));
  assert.equal(await used(limiter), 2);
  const other = await limiter.check('p', 'k', { cost: 5 });
  await limiter.settle(other, vm.runInNewContext('({ p: 1 })'));
  assert.equal(await used(limiter), 3);
});

test('a settle of a peek charges', async (t) => {
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  await limiter.settle(await limiter.peek('p', 'k', { cost: 5 }), 3);
  assert.equal(await used(limiter), 3);
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

/** Waits until a condition holds. */
async function until(holds) {
  const deadline = performance.now() + 20_000;
  while (!(await holds())) {
    assert.ok(performance.now() < deadline, `${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** The rest of each policy after a settle of a request to a model: requests, tokens and requests at once. */
async function leftAfter(t, settle, rpm = ['rpm', 'k']) {
  const limiter = new Limiter({
    policies: { rpm: '60/hour', tpm: '1000/hour', tpd: '9000/day', busy: 'concurrency 8' },
  });
  t.after(() => limiter.close());
  const decision = await limiter.checkAll([rpm, ['tpm', 'k', 500], ['tpd', 'k', 500]]);
  await settle(limiter, decision);
  const left = async (policy) => (await limiter.peek(policy, 'k')).remaining;
  return [await left('rpm'), await left('tpm'), await left('tpd')];
}

test('one number settles the entries that name a cost, and all where none does', async (t) => {
  const by = (actual) => (limiter, decision) => limiter.settle(decision, actual);
  assert.deepEqual(await leftAfter(t, by(300)), [59, 700, 8700]);
  assert.deepEqual(await leftAfter(t, by(0)), [59, 1000, 9000]);
  // A cost of one counts as named if the call gives it.
  assert.deepEqual(await leftAfter(t, by(30), ['rpm', 'k', 1]), [30, 970, 8970]);
  assert.deepEqual(await leftAfter(t, by(30), { policy: 'rpm', key: 'k' }), [59, 970, 8970]);
  const limiter = new Limiter({ policies: POLICIES });
  t.after(() => limiter.close());
  const whole = await limiter.checkAll([
    ['p', 'k'],
    ['q', 'k'],
  ]);
  await limiter.settle(whole, 4);
  assert.equal(await used(limiter), 4);
  assert.equal((await limiter.peek('q', 'k')).remaining, 16);
});

test('a list or a map settles each entry', async (t) => {
  const by = (actual) => (limiter, decision) => limiter.settle(decision, actual);
  assert.deepEqual(await leftAfter(t, by([2, 300, 400])), [58, 700, 8600]);
  assert.deepEqual(await leftAfter(t, by({ tpm: 300 })), [59, 700, 8500]);
  assert.deepEqual(await leftAfter(t, by(new Map([['rpm', 0]]))), [60, 500, 8500]);
  const wrong = [
    [[1, 2], /2 numbers for a Decision of 3 entries/],
    [[1, 2, 3, 4], /4 numbers/],
    [{ tmp: 300 }, /"tmp", which is not a policy.*"rpm", "tpm", "tpd"/],
    [{ tpm: -1 }, /"tpm".*not -1/],
    [[1, 2, '3'], /"tpd".*not "3"/],
    [null, /null/],
    ['300', /"300"/],
  ];
  for (const [actual, message] of wrong) {
    const settle = async (limiter, decision) => {
      await assert.rejects(limiter.settle(decision, actual), { code: 'cost_invalid', message });
      // Nothing was settled, so it may be settled now.
      await limiter.settle(decision, { tpm: 1 });
    };
    assert.deepEqual(await leftAfter(t, settle), [59, 999, 8500]);
  }
  const limiter = new Limiter();
  t.after(() => limiter.close());
  const notation = await limiter.check('10/minute', 'k', { cost: 4 });
  await limiter.settle(notation, { '10/minute': 1 });
  assert.equal((await limiter.peek('10/minute', 'k')).remaining, 9);
});

test('settle never charges units that are held', async (t) => {
  const limiter = new Limiter({ policies: { busy: 'concurrency 8', mixed: 'concurrency 8; 100/hour' } });
  t.after(() => limiter.close());
  const free = async (policy) => (await limiter.peek(policy, 'k')).limits.map(({ remaining }) => remaining);
  for (const actual of [300, [300], { busy: 300 }, 0]) {
    const hold = await limiter.hold('busy', 'k');
    await limiter.settle(hold.decision, actual);
    assert.deepEqual(await free('busy'), [7]);
    await hold.release();
  }
  assert.deepEqual(await free('busy'), [8]);
  const hold = await limiter.hold('mixed', 'k');
  await limiter.settle(hold.decision, 30);
  assert.deepEqual(await free('mixed'), [7, 70]);
  await hold.release();
  assert.deepEqual(await free('mixed'), [8, 70]);
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

test('a call that gives nothing back refuses a concurrency limit', async (t) => {
  const limiter = new Limiter({
    policies: { exports: 'concurrency 2', both: '10/hour; concurrency 2', rate: '10/hour' },
  });
  t.after(() => limiter.close());
  for (const policy of ['exports', 'both']) {
    for (const call of [
      limiter.check(policy, 'k'),
      limiter.acquire(policy, 'k', { timeoutMs: 1_000 }),
      limiter.checkAll([
        ['rate', 'k'],
        [policy, 'k'],
      ]),
    ]) {
      await assert.rejects(call, config(/take them with hold/));
    }
    assert.equal((await limiter.peek(policy, 'k')).limits.at(-1).remaining, 2);
  }
  await assert.rejects(
    limiter.hold('rate', 'k', () => {}),
    config(/ask with check, or wait with acquire/),
  );
  assert.equal((await limiter.peek('rate', 'k')).remaining, 10);
});

test('a settle is made again only where it certainly did not run', async (t) => {
  const servers = await Servers.start('single');
  const limiter = new Limiter({ store: servers.url, policies: POLICIES, onStoreError: 'raise', timeoutMs: 2_000 });
  t.after(() => Promise.all([limiter.close(), servers.close()]));
  const [late, refused] = [await limiter.check('p', 'k', { cost: 5 }), await limiter.check('p', 'k', { cost: 3 })];
  // The server gets the settle, but it does not answer in time.
  await servers.stop();
  await assert.rejects(limiter.settle(late, 1), { code: 'store_timeout' });
  await servers.cont();
  await assert.rejects(limiter.settle(late, 1), config(/"p" was settled before/));
  await servers.kill();
  // A call over the lost connection may have run. After this loop there is no connection.
  await until(() =>
    limiter.peek('p', 'k').then(
      () => false,
      ({ code }) => code === 'store_unavailable',
    ),
  );
  await assert.rejects(limiter.settle(refused, 1), { code: 'store_unavailable' });
  await servers.start();
  await until(() =>
    limiter.peek('p', 'k').then(
      () => true,
      () => false,
    ),
  );
  await limiter.settle(refused, 1);
});
