// Workers are terminated while callers wait in them. Prints the leftovers: threads, open files, and units those callers still take.

import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

import { Limiter } from 'tidegate';

const POLICY = 'fixed-window 10/s';
const HELD = 'concurrency 1';
const KEYS = ['a', 'b', 'c'];

if (isMainThread) {
  const [, , store, ending] = process.argv;
  const prefix = `waiting${process.pid}`;
  const file = new URL(import.meta.url);
  const watcher = new Limiter({ store, prefix, timeoutMs: 20_000 });

  /** Workers that end while callers wait in them. */
  const round = async (count) => {
    const workers = Array.from({ length: count }, () => new Worker(file, { workerData: { store, prefix, ending } }));
    const ends = workers.map((worker) => once(worker, 'exit'));
    await Promise.all(workers.map((worker) => once(worker, 'message')));
    if (ending === 'terminate') await Promise.all(workers.map((worker) => worker.terminate()));
    else for (const worker of workers) worker.postMessage('exit');
    await Promise.all(ends);
  };
  const open = () => [readdirSync('/proc/self/task').length, readdirSync('/proc/self/fd').length];

  // The first rounds start the threads and files that this limiter and the process keep.
  await watcher.peek(POLICY, 'a');
  await round(2);
  await sleep(200);
  const before = open();
  await round(4);
  // The windows of the workers that ended are over after this time. Then no worker takes the units of the next window.
  const windows = await Promise.all(KEYS.map((key) => watcher.peek(POLICY, key)));
  const over = performance.now() + Math.max(...windows.map(({ resetAfterMs }) => resetAfterMs)) + 100;
  let taken = 0;
  while (store !== 'memory://' && performance.now() < over + 1_500) {
    await sleep(50);
    if (performance.now() < over) continue;
    for (const key of KEYS) taken = Math.max(taken, 10 - (await watcher.peek(POLICY, key)).remaining);
  }
  let after = open();
  // Threads end soon after.
  for (let turn = 0; turn < 100 && after.some((count, index) => count > before[index]); turn++) {
    await sleep(50);
    after = open();
  }
  const held = (await watcher.peek(HELD, 'a')).remaining === 1 ? 0 : 1;
  const left = after.map((count, index) => Math.max(0, count - before[index]));
  console.log(JSON.stringify({ threads: left[0], files: left[1], taken, held }));
  await watcher.close();
} else {
  const { store, prefix, ending } = workerData;
  const limiter = new Limiter({ store, prefix, timeoutMs: 20_000 });
  for (const key of KEYS) {
    await limiter.charge(POLICY, key, 10);
    for (let count = 0; count < 5; count++) limiter.acquire(POLICY, key).catch(() => {});
  }
  await limiter.hold(HELD, 'a').catch(() => {});
  // There is one unit for all of these calls, so nearly all of them wait until their worker ends.
  limiter.acquire('fixed-window 1/hour', 'b', { cost: 1 }).catch(() => {});
  limiter.acquire('fixed-window 1/hour', 'b', { cost: 1 }).catch(() => {});
  await limiter.peek(POLICY, 'a');
  if (ending === 'exit') parentPort.on('message', () => process.exit(0));
  parentPort.postMessage('waiting');
}
