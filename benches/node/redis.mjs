// Tidegate and its peers on one Redis, in one run: checks per second, and CPU of this process per check. Trust the ratios: a busy
// machine changes everything else.
//
//     node benches/node/redis.mjs [seconds a round] [rounds]

import { Redis } from 'ioredis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterRedis } from 'rate-limiter-flexible';

import { Limiter } from 'tidegate';

import { Servers } from '../../tests/servers/servers.mjs';

const seconds = Number(process.argv[2] ?? 0.5);
const rounds = Number(process.argv[3] ?? 7);
const KEYS = 1_000;
const IN_FLIGHT = [1, 16, 64, 256];

const servers = await Servers.start('single');
const port = servers.port();
const keys = Array.from({ length: KEYS }, (_, index) => `user:${index}`);

const redis = new Redis({ port });
const limiter = new Limiter({ store: servers.url, timeoutMs: 20_000 });
const flexible = new RateLimiterRedis({ storeClient: redis, points: 1_000_000_000, duration: 3_600 });
const rlr = new RedisStore({ sendCommand: (...words) => redis.call(...words) });
rlr.init({ windowMs: 3_600_000 });
// The least that a limiter in one script can do.
const bare = await redis.script(
  'LOAD',
  `local n = redis.call('INCR', KEYS[1])
   if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
   return {n, redis.call('PTTL', KEYS[1])}`,
);

const runners = {
  tidegate: (key) => limiter.check('fixed-window 1000000000/hour', key),
  'ioredis evalsha': (key) => redis.evalsha(bare, 1, `bare:${key}`, 3_600_000),
  'rate-limiter-flexible': (key) => flexible.consume(key),
  'rate-limit-redis': (key) => rlr.increment(key),
};

/** Keeps that many checks in flight for the length of a round. */
async function round(check, inFlight) {
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  const until = began + seconds * 1_000;
  let count = 0;
  const caller = async (start) => {
    for (let index = start; performance.now() < until; index += 7) {
      await check(keys[index % KEYS]);
      count++;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, (_, index) => caller(index * 31)));
  const { user, system } = process.cpuUsage(cpu);
  return { rate: (count / (performance.now() - began)) * 1_000, cpu: (user + system) / count };
}

const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];

console.log(`checks per second (µs of this process's CPU per check), median of ${rounds} rounds of ${seconds} s\n`);
for (const inFlight of IN_FLIGHT) {
  const results = Object.fromEntries(Object.keys(runners).map((name) => [name, []]));
  for (let time = -1; time < rounds; time++) {
    // The runners take turns in every round, so that a disturbance affects all of them.
    for (const [name, check] of Object.entries(runners)) {
      const result = await round(check, inFlight);
      if (time >= 0) results[name].push(result);
    }
  }
  const rate = (name) => median(results[name].map((one) => one.rate));
  for (const name of Object.keys(runners)) {
    const cpu = median(results[name].map((one) => one.cpu)).toFixed(1);
    // Within a round, because the machine changes between rounds.
    const ratio = median(results[name].map((one, index) => results.tidegate[index].rate / one.rate)).toFixed(2);
    const row = [
      `${inFlight}`.padStart(4),
      name.padEnd(22),
      `${Math.round(rate(name))}`.padStart(8),
      `(${cpu})`.padStart(7),
    ];
    console.log(`${row.join('  ')}   tidegate is ${ratio} x`);
  }
  console.log();
}

const few = new RateLimiterRedis({
  storeClient: redis,
  points: 5,
  duration: 3_600,
  keyPrefix: 'few',
  inMemoryBlockOnConsumed: 5,
  inMemoryBlockDuration: 3_600,
});
const denied = {
  tidegate: (key) => limiter.check('fixed-window 5/hour', key),
  'rate-limiter-flexible': (key) => few.consume(key).catch((denial) => denial),
};
console.log('a key that is being denied, ns of CPU per awaited check');
for (const [name, check] of Object.entries(denied)) {
  for (let time = 0; time < 10; time++) await check('denied');
  const costs = [];
  for (let time = 0; time < 5; time++) {
    const cpu = process.cpuUsage();
    const count = 200_000;
    for (let index = 0; index < count; index++) await check('denied');
    const { user, system } = process.cpuUsage(cpu);
    costs.push(((user + system) * 1_000) / count);
  }
  console.log(`      ${name.padEnd(22)}  ${Math.round(median(costs))}`);
}

await limiter.close();
redis.disconnect();
await servers.close();
