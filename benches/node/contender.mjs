// The contenders of `make bench` that are written in JavaScript: one process is one round of one of them.
//
// Its arguments are `name=value`. It prints one line of JSON: `value`, the figure of the round; `decisions`, how many there were in
// its whole life, so that the caller can divide what the server has spent; `beside`, further figures by name.

import cluster from 'node:cluster';
import process from 'node:process';
import { ClusterMemoryStorePrimary } from '@express-rate-limit/cluster-memory-store';
import { Redis } from 'ioredis';
import { contenders, pipelines, severalLimits } from './peers.mjs';
import { callsOf, limitsOf } from './traffic.mjs';

const given = Object.fromEntries(process.argv.slice(2).map((argument) => argument.split(/=(.*)/s, 2)));
const { mode, contender, url, kind = 'fixed' } = given;
const [seconds, warm] = [Number(given.seconds), Number(given.warm)];
const count = Number(given.keys ?? 1);
// One hot key is one that no other round has used, unless processes share it; but a key to deny stays denied.
const hot = kind === 'denied' ? 'hot' : (given.key ?? `hot:${process.pid}`);
const keys =
  count === 1 ? [hot] : Array.from({ length: count }, (_, index) => `user:${String(index).padStart(7, '0')}`);

/** Keeps that many checks in flight until the time has passed or there were enough: how many there were. */
async function checks(check, inFlight, span, most = Number.POSITIVE_INFINITY) {
  const until = performance.now() + span * 1_000;
  let done = 0;
  const caller = async (start) => {
    // The clock costs as much as a check in memory, so a caller looks at it after some checks.
    const chunk = inFlight === 1 ? 16 : 4;
    for (let index = start; performance.now() < until && done < most; ) {
      for (let step = 0; step < chunk; step++, index += 7) await check(keys[index % count]);
      done += chunk;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, (_, index) => caller(index * 31)));
  return done;
}

/** Two parts, the second of which is measured. */
async function rate(run) {
  const most = Number(given.most ?? Number.POSITIVE_INFINITY);
  const before = await run(warm, most / 4);
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  const done = await run(seconds, (most * 3) / 4);
  const took = performance.now() - began;
  const { user, system } = process.cpuUsage(cpu);
  const beside = { 'client CPU, µs': (user + system) / done };
  return { value: (done / took) * 1_000, decisions: before + done, beside };
}

async function inFlight() {
  const check = await contenders[contender](url, kind);
  await check('first');
  return rate((span, most) => checks(check, Number(given.in_flight), span, most));
}

/** Callers that share keys and policies. */
async function traffic() {
  const policies = Number(given.policies);
  const checks = await severalLimits[contender](url, limitsOf(given.algorithms, policies));
  for (const check of checks) await check('first');
  const tasks = Number(given.tasks);
  const callers = Array.from({ length: tasks }, (_, caller) => callsOf(caller, tasks, given.spread, count, policies));
  return rate(async (span) => {
    const until = performance.now() + span * 1_000;
    let done = 0;
    const caller = async (calls) => {
      for (let index = 0; performance.now() < until; done += 4) {
        for (let step = 0; step < 4; step++, index++) {
          const [policy, key] = calls[index % calls.length];
          await checks[policy](key);
        }
      }
    };
    await Promise.all(callers.map(caller));
    return done;
  });
}

/** `inFlight` in so many workers of a cluster: their rates add up. */
async function inCluster() {
  if (cluster.isWorker) {
    const figures = await inFlight();
    return new Promise(() => process.send(figures));
  }
  new ClusterMemoryStorePrimary().init();
  const workers = Array.from({ length: Number(given.workers) }, () => cluster.fork());
  const figures = await Promise.all(
    workers.map(
      (worker) =>
        new Promise((resolve, reject) => {
          // The store of the peer sends messages of its own.
          worker.on('message', (message) => 'decisions' in message && resolve(message));
          worker.on('exit', () => reject(new Error('a worker has ended')));
        }),
    ),
  );
  for (const worker of workers) worker.process.kill();
  const sum = (name) => figures.reduce((whole, each) => whole + each[name], 0);
  return { value: sum('value'), decisions: sum('decisions'), beside: {} };
}

async function pipelined() {
  const send = await pipelines[contender](url);
  const size = Number(given.in_flight);
  return rate(async (span) => {
    const until = performance.now() + span * 1_000;
    let done = 0;
    while (performance.now() < until) {
      await send(Array.from({ length: size }, (_, index) => keys[((done + index) * 7) % count]));
      done += size;
    }
    return done;
  });
}

/** The bytes of the server's keys (MEMORY USAGE) after some checks of one key. */
async function keyBytes() {
  const redis = new Redis(url);
  await redis.flushall();
  const check = await contenders[contender](url, kind);
  for (let index = 0; index < Number(given.checks); index++) await check('user:1234567');
  let value = 0;
  for (const key of await redis.keys('*')) value += await redis.memory('USAGE', key, 'SAMPLES', 0);
  return { value, decisions: Number(given.checks) };
}

/** The bytes by which this process grows for each key. */
async function memoryBytes() {
  const check = await contenders[contender]('memory://', kind);
  const name = (index) => `user:${String(index).padStart(11, '0')}`;
  const settle = async () => {
    // What is garbage is no memory of a key.
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 50));
    return process.memoryUsage().rss;
  };
  for (let index = 0; index < 1_000; index++) await check(name(index));
  const before = await settle();
  for (let index = 1_000; index < count; index++) await check(name(index));
  return { value: ((await settle()) - before) / (count - 1_000), decisions: count };
}

const modes = {
  'in-flight': inFlight,
  traffic,
  cluster: inCluster,
  pipelined,
  'key-bytes': keyBytes,
  'memory-bytes': memoryBytes,
};
process.stdout.write(`${JSON.stringify(await modes[mode]())}\n`, () => process.exit());
