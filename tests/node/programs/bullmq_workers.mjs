// The workers of bullmq.test.mjs, in the process of the test and in another one. Their jobs write to lists of Redis.
// The other process is `node bullmq_workers.mjs MODULE URL PREFIX`.

import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { Redis } from 'ioredis';
import { Limiter } from 'tidegate';
import { limited } from 'tidegate/bullmq';

const POLICIES = {
  window: 'sliding-log 10/2s',
  bucket: 'gcra 20/s burst 1',
  single: 'concurrency 1 ttl 20s',
  fragile: 'concurrency 1 ttl 2s',
  rare: '10/hour',
};

/** A server in the form that every BullMQ takes. The first versions take no URL. */
export function connectionTo(url) {
  const { hostname: host, port } = new URL(url);
  return { host, port: Number(port) };
}

/** Starts a worker for each queue, or only for the named ones. */
export function startWorkers({ Worker }, url, prefix, only) {
  const redis = new Redis(url);
  const limiter = new Limiter({ store: url, prefix, policies: POLICIES, timeoutMs: 20_000, onStoreError: 'raise' });
  const note = (what, more) =>
    redis.rpush(`${prefix}:${what}`, JSON.stringify({ at: Date.now(), pid: process.pid, ...more }));
  const onWait = (decision, waitMs) => note('waits', { key: decision.key, waitMs });
  const user = (job) => job.data.user;
  const processors = {
    window: limited({ limiter, policy: 'window', key: user, onWait }, async ({ data }) => {
      await note('window', data);
      return data.number;
    }),
    bucket: limited({ limiter, policy: 'bucket', key: user, cost: () => 1, onWait }, async ({ data }) => {
      await note('bucket', data);
      return data.number;
    }),
    'fails once': limited({ limiter, policy: 'bucket', onWait }, async (job) => {
      await note('fails once', { id: job.id, made: job.attemptsMade });
      if (job.attemptsMade === 0) throw new Error('this attempt fails');
    }),
    single: limited({ limiter, policy: 'single', onWait }, async ({ data }) => {
      await note('single', { ...data, begins: true });
      await sleep(20);
      await note('single', { ...data, begins: false });
      if (data.number % 3 === 0) throw new Error('this job fails');
    }),
    hangs: limited({ limiter, policy: 'fragile', key: 'all', onWait }, async (job) => {
      await note('hangs', job.data);
      if (job.data.isLong) await sleep(600_000);
    }),
    rare: limited(
      {
        limiter,
        policy: ({ data }) => (data.user === 'free' ? undefined : 'rare'),
        key: user,
        cost: ({ data }) => data.cost ?? 1,
      },
      async ({ data }) => data.user,
    ),
  };
  const workers = [];
  for (const [name, processor] of Object.entries(processors)) {
    if (only !== undefined && !only.includes(name)) continue;
    const worker = new Worker(name, processor, {
      connection: connectionTo(url),
      prefix,
      // A worker that hangs takes no other job, because that job would be lost with it.
      concurrency: name === 'hangs' ? 1 : 4,
      // BullMQ would give a job of a killed worker to the next one, which would hang.
      ...(name === 'hangs' && { lockDuration: 3_600_000 }),
    });
    worker.on('error', () => {});
    workers.push(worker);
  }
  const close = async () => {
    await Promise.all(workers.map((worker) => worker.close(true)));
    await limiter.close();
    redis.disconnect();
  };
  return { limiter, close };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [module, url, prefix, ...only] = process.argv.slice(2);
  startWorkers(await import(module), url, prefix, only.length > 0 ? only : undefined);
  process.stdin.on('end', () => process.exit()).resume();
}
