// Four threads drain one limit. Two more are terminated in the middle of their calls.

import { once } from 'node:events';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

import { Limiter } from 'tidegate';

if (isMainThread) {
  const [, , store] = process.argv;
  const prefix = `workers${process.pid}`;
  const file = new URL(import.meta.url);
  const victims = [1, 2].map(() => new Worker(file, { workerData: { store, prefix: `${prefix}x`, forever: true } }));
  await Promise.all(victims.map((worker) => once(worker, 'message')));
  await Promise.all(victims.map((worker) => worker.terminate()));
  const workers = [1, 2, 3, 4].map(() => new Worker(file, { workerData: { store, prefix } }));
  const counts = await Promise.all(
    workers.map(async (worker) => {
      const [[count]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
      return count;
    }),
  );
  console.log(counts.reduce((sum, count) => sum + count));
} else {
  const { store, prefix, forever } = workerData;
  const limiter = new Limiter({ store, prefix, timeoutMs: 20_000 });
  let count = 0;
  do {
    const calls = Array.from({ length: 100 }, () => limiter.check('fixed-window 100/hour', 'all'));
    if (forever) parentPort.postMessage('going');
    for (const decision of await Promise.all(calls)) count += decision.allowed ? 1 : 0;
  } while (forever);
  parentPort.postMessage(count);
}
