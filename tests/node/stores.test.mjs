// Reports of a limiter about its stores: log lines, changes and counters. Also a move from one store to another.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import process from 'node:process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect, promisify } from 'node:util';
import { Limiter, rollout } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

/** No server listens on port 1. */
const NO_SERVER = 'redis://someone:hunter2@127.0.0.1:1/0';
const POLICY = 'fixed-window 5/hour';

async function until(what, isSo) {
  const deadline = Date.now() + 20_000;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A logger that keeps its lines, and a listener that keeps its changes. */
function listening() {
  const [lines, changes] = [[], []];
  const logger = { warn: (line) => lines.push(['warn', line]), info: (line) => lines.push(['info', line]) };
  return { lines, changes, logger, onChange: (change) => changes.push(change) };
}

describe('a store that comes and goes', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  it('is reported once for each change, and counted', async () => {
    const { lines, changes, logger, onChange } = listening();
    const limiter = new Limiter({ store: servers.url, prefix: 'told', timeoutMs: 2_000, logger, onChange });
    const began = Date.now();
    await limiter.ping();
    await servers.stop(0);
    await until('the store is lost', async () => {
      await Promise.all(Array.from({ length: 20 }, (_, index) => limiter.check(POLICY, `k${index}`)));
      return changes.length > 0;
    });
    for (let round = 0; round < 50; round++) await limiter.check(POLICY, 'a');
    assert.equal(lines.length, 1);
    assert.deepEqual([changes[0].state, changes[0].store.startsWith('redis://')], ['lost', true]);
    assert.ok(changes[0].since instanceof Date && Math.abs(changes[0].since - began) < 60_000);
    assert.deepEqual(lines[0], ['warn', changes[0].message]);
    assert.match(lines[0][1], /is lost, so this process limits by itself \(the limiter's onStoreError is `local`\)/);
    await servers.cont(0);
    await until('the store is back', () => changes.length > 1);
    assert.equal(changes[1].state, 'back');
    assert.deepEqual(lines[1], ['info', changes[1].message]);
    assert.equal(lines.length, 2);

    const { asked, lost, fallbackLocal, withheld, storeTimeout, storeUnavailable } = limiter.counters();
    assert.ok(asked > 0);
    assert.equal(lost, 1);
    assert.ok(fallbackLocal >= 51, `${fallbackLocal}`);
    assert.ok(withheld > 0 && storeTimeout + storeUnavailable > 0);
    await limiter.close();
  });

  it('denials that JavaScript repeats are counted too', async () => {
    const limiter = new Limiter({ store: servers.url, prefix: 'counted', timeoutMs: 20_000, denyCacheMs: 60_000 });
    for (let round = 0; round < 5; round++) await limiter.check(POLICY, 'a');
    const asked = () => limiter.counters().asked;
    await limiter.check(POLICY, 'a');
    const before = asked();
    for (let round = 0; round < 10; round++) await limiter.check(POLICY, 'a');
    assert.deepEqual([limiter.counters().denyCache, asked()], [10, before]);
    await limiter.close();
    const memory = new Limiter();
    await memory.check(POLICY, 'a');
    assert.deepEqual([...new Set(Object.values(memory.counters()))], [0]);
  });
});

describe('log lines', () => {
  /** Runs a program that loses its store, and returns its output. */
  async function lost(options) {
    const program = `
      import { Limiter } from 'tidegate';
      const limiter = new Limiter({ store: '${NO_SERVER}', timeoutMs: 5_000 ${options} });
      for (let round = 0; round < 20; round++) await limiter.check('5/s', 'a');
      await limiter.close();
      await new Promise((resolve) => setTimeout(resolve, 50));`;
    const cwd = fileURLToPath(new URL('.', import.meta.url));
    const words = ['--input-type=module', '--eval', program];
    return promisify(execFile)(process.execPath, words, { cwd });
  }

  it('are warnings of the process, one for each change, without secrets', async () => {
    const { stderr } = await lost('');
    const warnings = stderr.split('\n').filter((line) => line.includes('TidegateWarning'));
    assert.equal(warnings.length, 1, stderr);
    assert.match(warnings[0], /redis:\/\/127\.0\.0\.1:1\/0 is lost/);
    assert.ok(!stderr.includes('hunter2'));
  });

  it('go to the logger of the application, or nowhere', async () => {
    const { stdout, stderr } = await lost(', logger: { warn: (line) => console.log(line), info: () => {} }');
    assert.match(stdout, /^redis:\/\/127\.0\.0\.1:1\/0 is lost.*\n$/);
    assert.equal(stderr, '');
    const silent = await lost(', logger: false');
    assert.deepEqual([silent.stdout, silent.stderr], ['', '']);
  });

  it('an error of a listener is a warning', async () => {
    const onChange = () => {
      throw new Error('from the listener');
    };
    const limiter = new Limiter({ store: NO_SERVER, timeoutMs: 5_000, logger: false, onChange });
    const warnings = [];
    process.once('warning', (warning) => warnings.push(warning.message));
    for (let round = 0; round < 20; round++) await limiter.check('5/s', 'a');
    // A listener keeps no process alive, so the test has to wait.
    await until('a warning', () => warnings.length > 0);
    assert.deepEqual(warnings, ['from the listener']);
    await limiter.close();
  });

  it('need a logger with warn and info', () => {
    for (const logger of [true, 'console', {}, { warn() {} }, null]) {
      assert.throws(() => new Limiter({ logger }), { code: 'config_invalid' });
    }
    for (const onChange of [true, {}, null]) assert.throws(() => new Limiter({ onChange }), { code: 'config_invalid' });
  });
});

describe('a rollout', () => {
  let old;
  let fresh;
  before(async () => {
    [old, fresh] = await Promise.all([Servers.start('single'), Servers.start('single')]);
  });
  after(() => Promise.all([old?.close(), fresh?.close()]));

  it('gives a stable share of the keys to the new store, at once', async () => {
    const limiter = new Limiter({ store: rollout(old.url, fresh.url, 0), prefix: 'move', timeoutMs: 20_000 });
    const keys = Array.from({ length: 200 }, (_, index) => `k${index}`);
    const checked = () => Promise.all(keys.map((key) => limiter.check(POLICY, key)));
    const sizes = async () => Promise.all([old, fresh].map((store) => store.command(['DBSIZE'])));
    await checked();
    assert.deepEqual(await sizes(), [200, 0]);
    limiter.setRollout(30);
    const first = (await checked()).map(({ remaining }) => remaining);
    const [, moved] = await sizes();
    assert.ok(moved > 30 && moved < 90, `${moved}`);
    assert.equal(first.filter((remaining) => remaining === 4).length, moved);
    // The same keys use the new store again, and their usage there is kept.
    assert.deepEqual(
      (await checked()).map(({ remaining }) => remaining),
      first.map((remaining) => remaining - 1),
    );
    limiter.setRollout(0);
    const back = (await checked()).map(({ remaining }) => remaining);
    assert.deepEqual(
      back,
      first.map((remaining) => (remaining === 4 ? 3 : 1)),
    );
    await limiter.close();
  });

  it('a denial of the old store does not hold in the new one', async () => {
    const store = rollout(old.url, fresh.url, 0);
    const limiter = new Limiter({ store, prefix: 'denied', timeoutMs: 20_000, denyCacheMs: 60_000 });
    for (let round = 0; round < 6; round++) await limiter.check(POLICY, 'a');
    assert.equal((await limiter.check(POLICY, 'a')).source, 'deny-cache');
    limiter.setRollout(100);
    assert.equal((await limiter.check(POLICY, 'a')).allowed, true);
    await limiter.close();
  });

  it('rejects wrong percentages and URLs, and prints no passwords', () => {
    const wrong = { code: 'config_invalid' };
    for (const percent of [-1, 101, Number.NaN, '5', undefined]) {
      assert.throws(() => new Limiter({ store: rollout(old.url, fresh.url, percent) }), wrong, `${percent}`);
    }
    assert.throws(() => rollout(old.url, undefined, 5), wrong);
    assert.throws(() => new Limiter().setRollout(5), wrong);
    const limiter = new Limiter({ store: rollout(old.url, fresh.url, 5) });
    for (const percent of [-1, 101, Number.NaN, '5']) assert.throws(() => limiter.setRollout(percent), wrong);
    assert.doesNotMatch(inspect(rollout(NO_SERVER, NO_SERVER, 5)), /hunter2/);
    return limiter.close();
  });
});

it('policy returns the policy of a call, and waiting counts callers in acquire', async () => {
  const limiter = new Limiter({ policies: { login: { limits: '2/minute; 9/hour', shadow: true } } });
  const policy = limiter.policy('login');
  assert.deepEqual([policy.name, policy.shadow, String(policy)], ['login', true, '2/minute; 9/hour']);
  assert.equal(limiter.policy('3 per minute').name, '3/minute');
  assert.throws(() => limiter.policy('logn'), { code: 'policy_unknown' });
  await limiter.check('1/hour', 'a');
  const controller = new AbortController();
  const waits = limiter.acquire('1/hour', 'a', { signal: controller.signal });
  await until('it waits', () => limiter.waiting('1/hour', 'a') === 1);
  assert.equal(limiter.waiting('1/hour', 'b'), 0);
  controller.abort();
  await assert.rejects(waits);
  await limiter.close();
});
