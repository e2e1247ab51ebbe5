// `tidegate/bullmq`: real workers in two processes on a real Redis, with both versions of BullMQ.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { Limiter } from 'tidegate';
import { limited } from 'tidegate/bullmq';
import { Servers } from '../servers/servers.mjs';
import { connectionTo, startWorkers } from './programs/bullmq_workers.mjs';

/** The number of workers that are killed in the midst of a job. By default none is, because this waits for locks of BullMQ to expire. */
const KILLS = Number(process.env.TIDEGATE_KILLS ?? 0);
const PROGRAM = fileURLToPath(new URL('programs/bullmq_workers.mjs', import.meta.url));

let servers;
let redis;
before(async () => {
  servers = await Servers.start('single');
  redis = new Redis(servers.url);
});
after(async () => {
  redis?.disconnect();
  await servers?.close();
});

async function until(holds) {
  for (const deadline = Date.now() + 60_000; ; await sleep(10)) {
    const value = await holds();
    if (value) return value;
    assert.ok(Date.now() < deadline, 'in a minute');
  }
}

for (const version of ['bullmq', 'bullmq5']) {
  suite(`${version}: limited jobs`, { concurrency: true }, () => {
    let bullmq;
    let workers;
    let child;
    const queues = [];
    const start = (...only) =>
      spawn(process.execPath, [PROGRAM, version, servers.url, version, ...only], {
        stdio: ['pipe', 'inherit', 'inherit'],
      });
    before(async () => {
      bullmq = await import(version);
      workers = startWorkers(bullmq, servers.url, version, ['window', 'bucket', 'fails once', 'single', 'rare']);
      child = start('window', 'bucket', 'fails once', 'single');
    });
    after(async () => {
      child.stdin.end();
      await Promise.all(queues.map((queue) => queue.close()));
      await workers.close();
    });
    const queueOf = (name) => {
      const queue = new bullmq.Queue(name, { connection: connectionTo(servers.url), prefix: version });
      queues.push(queue);
      return queue;
    };
    const noted = async (what) => (await redis.lrange(`${version}:${what}`, 0, -1)).map((line) => JSON.parse(line));
    const waits = async (key) => (await noted('waits')).filter((one) => one.key === `job:${key}`).length;

    /** Adds jobs, and returns them when each has ended. */
    async function ended(name, jobs, options = {}) {
      const queue = queueOf(name);
      const added = await queue.addBulk(jobs.map((data) => ({ name: 'job', data, opts: options })));
      await until(async () => (await queue.getJobCountByTypes('completed', 'failed')) >= jobs.length);
      return Promise.all(added.map((job) => queue.getJob(job.id)));
    }

    test('no window has more of them than the limit', async () => {
      const began = Date.now();
      const users = ['alice', 'bob'];
      const data = Array.from({ length: 50 }, (_, index) => ({ user: users[index % 2], number: index }));
      const jobs = await ended('window', data);
      assert.deepEqual(
        jobs.map((job) => job.returnvalue),
        data.map(({ number }) => number),
      );
      const ran = await noted('window');
      assert.equal(new Set(ran.map(({ number }) => number)).size, 50);
      for (const user of users) {
        // Ten in each two seconds. A job is noted after it was admitted, and was admitted after all began.
        const times = ran.filter((one) => one.user === user).map(({ at }) => at - began);
        times.sort((a, b) => a - b);
        assert.equal(times.length, 25);
        for (const [place, at] of times.entries())
          assert.ok(at >= Math.floor(place / 10) * 2_000 - 1, `${place}: ${at}`);
        // On a very busy machine the jobs come late by themselves, and few have to wait.
        assert.ok((await waits(user)) >= 15 || times.at(-1) > 6_000);
      }
    });

    test('those that wait do not thunder, and use no attempt', async () => {
      const began = Date.now();
      const data = Array.from({ length: 60 }, (_, number) => ({ user: 'carol', number }));
      const jobs = await ended('bucket', data, { attempts: 3 });
      assert.deepEqual(new Set(jobs.map((job) => job.attemptsMade)), new Set([1]));
      const ran = await noted('bucket');
      assert.equal(new Set(ran.map(({ number }) => number)).size, 60);
      assert.equal(ran.length, 60);
      const times = ran.map(({ at }) => at - began);
      times.sort((a, b) => a - b);
      for (const [place, at] of times.entries()) assert.ok(at >= place * 50 - 2, `${place}: ${at}`);
      // If all waited for the same moment, all but one would be refused each time: 60 * 59 / 2 times.
      const waited = await waits('carol');
      assert.ok((waited >= 50 || times.at(-1) > 4_000) && waited <= 600, `${waited}`);
    });

    test('attempts are counted as without a limit', async () => {
      const jobs = await ended('fails once', Array(8).fill({}), { attempts: 2 });
      assert.deepEqual(new Set(jobs.map((job) => job.attemptsMade)), new Set([2]));
      assert.equal((await noted('fails once')).length, 16);
      assert.ok(await waits('fails once'));
    });

    test('a limit of jobs at the same time', async () => {
      const jobs = await ended(
        'single',
        Array.from({ length: 12 }, (_, number) => ({ number })),
      );
      assert.deepEqual(
        jobs.flatMap((job) => (job.failedReason === undefined ? [] : [job.data.number])),
        [0, 3, 6, 9],
      );
      const all = await noted('single');
      // Each job ends before the next one begins.
      assert.deepEqual(
        all.map(({ begins }) => begins),
        Array(12).fill([true, false]).flat(),
      );
      for (let index = 0; index < 24; index += 2) assert.equal(all[index].number, all[index + 1].number);
      assert.ok(await waits('single'));
      await until(async () => (await workers.limiter.peek('single', 'job:single')).remaining === 1);
    });

    test('a worker that is killed gives its units back', { skip: KILLS === 0 }, async (t) => {
      const queue = queueOf('hangs');
      const own = startWorkers(bullmq, servers.url, version, []);
      t.after(() => own.close());
      let next = start('hangs');
      t.after(() => next.stdin.end());
      for (let kill = 0; kill < KILLS; kill++) {
        const victim = next;
        await queue.add('job', { isLong: true, kill });
        await until(async () => (await noted('hangs')).some((one) => one.isLong && one.kill === kill));
        next = start('hangs');
        const before = await waits('all');
        await queue.add('job', { isLong: false, kill });
        // If the machine stalls for longer than the ttl, the hold ends, and the short job runs at once.
        const ran = async () => (await noted('hangs')).some((one) => !one.isLong && one.kill === kill);
        await until(async () => (await waits('all')) > before || (await ran()));
        assert.equal((await noted('hangs')).findLast((one) => one.isLong).pid, victim.pid);
        victim.kill('SIGKILL');
        await until(async () => (await queue.getCompletedCount()) === kill + 1);
      }
      await until(async () => (await own.limiter.peek('fragile', 'job:all')).remaining === 1);
      assert.equal(await queue.getFailedCount(), 0);
      assert.equal((await noted('hangs')).length, 2 * KILLS);
    });

    test('a block is waited for, no policy is no limit, and what never fits fails', async () => {
      const blocked = Date.now();
      await workers.limiter.block('rare', 'job:dan', 1_500);
      const jobs = await ended('rare', [{ user: 'dan' }, { user: 'free' }, { user: 'eve', cost: 11 }]);
      assert.ok(jobs[0].finishedOn - blocked >= 1_499);
      // Its wait is exact, so it asks once more at most.
      assert.ok(jobs[0].attemptsStarted <= 2);
      assert.equal(jobs[1].returnvalue, 'free');
      assert.match(jobs[2].failedReason, /rare denies this key: this is never admitted/);
    });
  });
}

test('what is wrong is said where it is written', () => {
  const limiter = new Limiter({ policies: { one: '1/minute' } });
  const work = async () => {};
  const leaky = { limiter, policy: 'leaky-bucket 10/s burst 5' };
  assert.throws(() => limited(leaky, work), /write gcra with a burst of 1, as in "gcra 10\/s burst 1"/);
  assert.throws(() => limited({ limiter, policy: 'two' }, work), { code: 'policy_unknown' });
  assert.throws(() => limited({ limiter, policy: 'one', key: 5 }, work), { code: 'key_invalid' });
  assert.throws(() => limited({ limiter, policy: 'one', cost: 0.5 }, work), { code: 'cost_invalid' });
  assert.throws(() => limited({ limiter, policy: 'one', prefx: '' }, work), /did you mean prefix/);
  assert.throws(() => limited({ policy: 'one' }, work), /limiter/);
  assert.throws(() => limited({ limiter, policy: 'one' }, './processor.js'), /a processor must be a function of a job/);
});
