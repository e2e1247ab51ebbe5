// Functions that a limiter has wrapped: their arguments, their holds, and their waits.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';

import { Limiter, Policy, RateLimited } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const require = createRequire(import.meta.url);

it('a wrapped function is limited', async () => {
  const limiter = new Limiter();
  const calls = [];
  function send(user, units) {
    calls.push([this, user, units]);
    return user.length;
  }
  const wrapped = limiter.wrap('fixed-window 3/minute', send, { key: (user) => user, cost: (_, units) => units });
  assert.deepEqual([wrapped.name, wrapped.length], ['send', 2]);
  const self = { wrapped };
  assert.equal(await self.wrapped('alice', 2), 5);
  await assert.rejects(wrapped('alice', 2), (error) => {
    assert.ok(error instanceof RateLimited && error.code === 'rate_limited');
    assert.equal(error.decision.key, 'alice');
    return true;
  });
  assert.equal(await wrapped('bob', 1), 3);
  assert.deepEqual(calls, [
    [self, 'alice', 2],
    [undefined, 'bob', 1],
  ]);
});

it('an error of the key, of the cost and of the function is the error of the call', async () => {
  const limiter = new Limiter();
  const policy = 'fixed-window 3/minute';
  const boom = () => {
    throw new Error('boom');
  };
  await assert.rejects(limiter.wrap(policy, () => {}, { key: boom })(), /boom/);
  await assert.rejects(limiter.wrap(policy, () => {}, { key: 'a', cost: boom })(), /boom/);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 3);
  await assert.rejects(limiter.wrap(policy, boom, { key: 'a' })(), /boom/);
  await assert.rejects(limiter.wrap(policy, async () => boom(), { key: 'a' })(), /boom/);
  assert.equal((await limiter.peek(policy, 'a')).remaining, 1);
});

it('a wrapped generator function is limited when it is called', async () => {
  const wrapped = new Limiter().wrap(
    'fixed-window 1/minute',
    async function* pages() {
      yield 1;
      yield 2;
    },
    { key: 'a' },
  );
  const seen = [];
  for await (const page of await wrapped()) seen.push(page);
  assert.deepEqual(seen, [1, 2]);
  await assert.rejects(wrapped(), RateLimited);
});

/** A promise, and the functions that settle it. */
function gate() {
  let [open, fail] = [];
  const promise = new Promise((resolve, reject) => {
    [open, fail] = [resolve, reject];
  });
  return { promise, open, fail };
}

/** The policies that hold units, and the index of the limit that counts the held units. */
const HELD = {
  'concurrency 2': 0,
  'fixed-window 100/minute; concurrency 2': 1,
  'concurrency 2; gcra 100/s burst 100; leaky-bucket 1000/s burst 100': 0,
};

async function holds(limiter, policy, concurrency) {
  const left = async () => (await limiter.peek(policy, 'a')).limits[concurrency].remaining;
  const [one, two] = [gate(), gate()];
  // The store may admit the second call before the first, so each call has its gate.
  let begun = 0;
  const wrapped = limiter.wrap(
    policy,
    ({ promise }) => {
      begun += 1;
      return promise;
    },
    { key: 'a' },
  );
  const running = [wrapped(one), wrapped(two)];
  while (begun < 2) await new Promise(setImmediate);
  assert.equal(await left(), 0);
  await assert.rejects(wrapped(gate()), RateLimited);
  one.open('first');
  assert.equal(await running[0], 'first');
  assert.equal(await left(), 1);
  two.fail(new Error('second'));
  await assert.rejects(running[1], /second/);
  assert.equal(await left(), 2);

  const seen = [];
  const plain = limiter.wrap(
    policy,
    function plain(...args) {
      seen.push([this, args]);
      if (args.length === 0) throw new Error('plain');
      return args.length;
    },
    { key: 'a', cost: 2 },
  );
  const self = { plain };
  assert.equal(await self.plain(1, 2), 2);
  await assert.rejects(plain(), /plain/);
  assert.deepEqual(seen, [
    [self, [1, 2]],
    [undefined, []],
  ]);
  assert.equal(await left(), 2);
}

describe('a concurrency limit is held while the function runs, however it ends', () => {
  for (const [policy, concurrency] of Object.entries(HELD)) {
    it(`${policy}, in memory`, () => holds(new Limiter(), policy, concurrency));
  }

  it('on Redis, by name and as a Policy', async () => {
    const servers = await Servers.start('single');
    const policies = { held: 'concurrency 2' };
    const limiter = new Limiter({ store: servers.url, timeoutMs: 20_000, policies });
    try {
      await holds(limiter, 'held', 0);
      await holds(limiter, new Policy('concurrency 2; fixed-window 100/minute', { name: 'both' }), 0);
    } finally {
      await limiter.close();
      await servers.close();
    }
  });

  it('a refusal of another limit holds nothing', async () => {
    const limiter = new Limiter();
    const policy = 'concurrency 2; fixed-window 1/minute';
    const wrapped = limiter.wrap(policy, () => {}, { key: 'a' });
    await wrapped();
    await assert.rejects(wrapped(), RateLimited);
    assert.equal((await limiter.peek(policy, 'a')).limits[0].remaining, 2);
  });

  it('after a reload the limit that the file then has', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
    const path = join(folder, 'policies.yaml');
    try {
      writeFileSync(path, 'policies: {jobs: 100/minute}\n');
      const limiter = await Limiter.fromFile(path);
      const work = gate();
      const wrapped = limiter.wrap('jobs', () => work.promise, { key: 'a' });
      writeFileSync(path, 'policies: {jobs: concurrency 1}\n');
      await limiter.reload();
      const running = wrapped();
      await assert.rejects(wrapped(), RateLimited);
      work.open();
      await running;
      assert.equal((await limiter.peek('jobs', 'a')).remaining, 1);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('a generator function, whose body runs later, is refused', () => {
    const limiter = new Limiter();
    for (const fn of [function* one() {}, async function* two() {}]) {
      assert.throws(() => limiter.wrap('concurrency 2', fn, { key: 'a' }), {
        code: 'config_invalid',
        message: /generator function (one|two).*hold/,
      });
    }
  });
});

describe('a leaky-bucket delays the function', () => {
  for (const policy of ['leaky-bucket 20/s burst 10', 'concurrency 10; leaky-bucket 20/s burst 10']) {
    it(policy, async () => {
      const began = performance.now();
      const times = [];
      const wrapped = new Limiter().wrap(policy, () => times.push(performance.now() - began), { key: 'a' });
      await Promise.all(Array.from({ length: 4 }, () => wrapped()));
      assert.equal(times.length, 4);
      // One for every 50 ms, and none too early. The clock of the limiter and this one may be a millisecond apart.
      for (const [index, time] of times.entries()) assert.ok(time > 50 * index - 1, `${times}`);
    });
  }

  it('in real time, whatever has taken the place of timers since the library was loaded', async (context) => {
    const wrapped = new Limiter().wrap('leaky-bucket 50/s burst 10', () => 7, { key: 'a' });
    context.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate', 'Date'] });
    assert.deepEqual(await Promise.all([wrapped(), wrapped(), wrapped()]), [7, 7, 7]);
  });

  /** The `delay` function with the timer of the mock. It reads its timer when it is loaded. */
  function mockedDelay(context) {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const paths = ['delay', 'bundle'].map((name) => require.resolve(`../../bindings-node/dist/${name}.js`));
    const loaded = paths.map((path) => [path, require.cache[path]]);
    for (const path of paths) delete require.cache[path];
    context.after(() => Object.assign(require.cache, Object.fromEntries(loaded)));
    return require(paths[0]).delay;
  }

  it('and rounds up', async (context) => {
    let ended = false;
    const running = mockedDelay(context)(28_799_999.2).then(() => {
      ended = true;
    });
    context.mock.timers.tick(28_799_999);
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    assert.equal(ended, false);
    context.mock.timers.tick(1);
    await running;
  });

  it('also longer than a timer can wait', async (context) => {
    let ended = false;
    const fifty = 50 * 86_400_000;
    mockedDelay(context)(fifty).then(() => {
      ended = true;
    });
    let days = 0;
    for (; !ended && days < 60; days++) {
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
      context.mock.timers.tick(86_400_000);
      for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    }
    // One day more if the first timer ended between two ticks.
    assert.ok(days === 50 || days === 51, `${days}`);
  });
});

describe('a class leaves room for others', () => {
  const priorities = { batch: '80%' };

  for (const notation of ['fixed-window 10/hour', 'concurrency 10']) {
    it(`${notation}: the name, or a function of the arguments`, async () => {
      const limiter = new Limiter({ policies: { jobs: new Policy(notation, { priorities }) } });
      const left = [];
      const work = async () => left.push((await limiter.peek('jobs', 'k', { priority: 'batch' })).remaining);
      const ofClass = limiter.wrap('jobs', work, { key: 'k', cost: (cost) => cost, priority: 'batch' });
      await ofClass(1);
      await assert.rejects(ofClass(3), (error) => {
        assert.ok(error instanceof RateLimited);
        assert.equal(error.decision.remaining, notation === 'concurrency 10' ? 2 : 1);
        return true;
      });
      const named = limiter.wrap('jobs', work, { key: 'k', cost: 3, priority: (name) => name });
      await assert.rejects(named('batch'), RateLimited);
      // Without a class it may take the units that stay free.
      await named(undefined);
      assert.deepEqual(left, [1, 0]);
    });
  }

  it('a class that no call could have is an error where it is written', async () => {
    const limiter = new Limiter({ policies: { api: new Policy('10/minute', { priorities }), plain: '10/minute' } });
    const wrap = (policy, priority) => limiter.wrap(policy, () => {}, { key: 'k', priority });
    const invalid = { code: 'config_invalid', message: /priority/ };
    assert.throws(() => wrap('api', 'bach'), { ...invalid, message: /"bach".*did you mean batch/ });
    const advice = /no policy has classes.* \{ priorities: \{ batch: '30%' \} \}$/;
    assert.throws(() => wrap('plain', 'batch'), { ...invalid, message: advice });
    assert.ok(new Policy('10/minute', { priorities: { batch: '30%' } }));
    assert.throws(() => wrap('api', 5), invalid);
    await assert.rejects(wrap('api', () => 5)(), { ...invalid, message: /priority function.*returned 5/ });
    await assert.rejects(wrap('api', () => 'bach')(), { ...invalid, message: /did you mean/ });
    assert.equal((await limiter.peek('api', 'k')).remaining, 10);
  });
});
