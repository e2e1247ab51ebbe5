// A check by each contender in Node: `await make(url, kind)` gives a function of a key that returns a promise. Every peer has the
// algorithm of its case, a fixed window.

import process from 'node:process';
import { ClusterMemoryStoreWorker } from '@express-rate-limit/cluster-memory-store';
import { MemoryStore } from 'express-rate-limit';
import { Redis } from 'ioredis';
import pg from 'pg';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterMemory, RateLimiterPostgres, RateLimiterRedis } from 'rate-limiter-flexible';
import { Limiter, Policy } from 'tidegate';

const HIGH = 1_000_000_000;
const HOUR_MS = 3_600_000;

const policies = {
  fixed: `fixed-window ${HIGH}/hour`,
  denied: 'fixed-window 5/hour',
  lease: new Policy('fixed-window 10000000/10s', { lease: '5%', name: 'hot' }),
  'no lease': new Policy('fixed-window 10000000/10s', { name: 'hot' }),
};

// The least that a limiter in one script can do.
const SCRIPT = `local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {n, redis.call('PTTL', KEYS[1])}`;

// GCRA as one would write it by hand: the numbers of one policy, the server's time, and nothing else.
const GCRA_SCRIPT = `local unpack, pack, floor = struct.unpack, struct.pack, math.floor
local capacity, interval, cost = unpack('<ddd', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since, units = now, 0
local stored = redis.pcall('GET', KEYS[1])
if stored then
  since, units = unpack('<I7I3', stored)
  local gone = floor((now - since) / interval)
  if gone >= units then
    since, units = now, 0
  elseif gone > 0 then
    since, units = since + gone * interval, units - gone
  end
end
local admitted = units + cost <= capacity
if admitted then
  units = units + cost
  local ms = floor((since + units * interval - now) / 1000) + 1
  redis.pcall('SET', KEYS[1], pack('<I7I3', since, units), 'PX', string.format('%d', ms))
end
return pack('<dBI7I3', now, admitted and 0 or 1, since, units)`;

function tidegate(url, kind) {
  const limiter = new Limiter({ store: url, timeoutMs: 20_000 });
  const policy = policies[kind];
  return (key) => limiter.check(policy, key);
}

async function evalsha(url, options) {
  const redis = new Redis(url, options);
  const digest = await redis.script('LOAD', SCRIPT);
  return (key) => redis.evalsha(digest, 1, `bare:${key}`, HOUR_MS);
}

/** As its users call it: a denial is a rejected promise. */
const settled = (limiter) => (key) => limiter.consume(key).catch((denial) => denial);

function flexible(url, options) {
  if (url === 'memory://') return settled(new RateLimiterMemory(options));
  return settled(new RateLimiterRedis({ storeClient: new Redis(url), ...options }));
}

const FEW = { points: 5, duration: 3_600, keyPrefix: `few${process.pid}` };

/** A limiter on a table. Its promise is settled when the table is there. */
function flexibleOnPostgres(url, options = {}) {
  const storeClient = new pg.Pool({ connectionString: url });
  const all = { storeClient, points: HIGH, duration: 3_600, tableName: 'flexible', ...options };
  return new Promise((resolve, reject) => {
    const limiter = new RateLimiterPostgres(all, (error) => (error ? reject(error) : resolve(settled(limiter))));
  });
}

const onPostgres = (url) => `${url}?create=yes`;

export const contenders = {
  tidegate,
  'tidegate, Postgres': (url, kind) => tidegate(onPostgres(url), kind),
  'rate-limiter-flexible, Postgres': (url) => flexibleOnPostgres(url),
  'tidegate, Postgres, two keys'(url) {
    const limiter = new Limiter({ store: onPostgres(url), timeoutMs: 20_000 });
    return (key) =>
      limiter.checkAll([
        ['fixed-window 1000000000/hour', key],
        ['fixed-window 1000000000/hour', 'shared'],
      ]);
  },
  async 'rate-limiter-flexible, Postgres, two keys'(url) {
    const consume = await flexibleOnPostgres(url);
    return (key) => Promise.all([consume(key), consume('shared')]);
  },
  'ioredis evalsha': (url) => evalsha(url, {}),
  'ioredis evalsha, auto-pipelining': (url) => evalsha(url, { enableAutoPipelining: true }),
  'rate-limiter-flexible': (url, kind) => flexible(url, kind === 'denied' ? FEW : { points: HIGH, duration: 3_600 }),
  'rate-limiter-flexible, in-memory block': (url) =>
    flexible(url, { ...FEW, inMemoryBlockOnConsumed: 5, inMemoryBlockDuration: 3_600 }),
  'rate-limit-redis': (url) => {
    const redis = new Redis(url);
    const store = new RedisStore({ sendCommand: (...words) => redis.call(...words) });
    store.init({ windowMs: HOUR_MS });
    return (key) => store.increment(key);
  },
  'express-rate-limit, cluster store': () => {
    const store = new ClusterMemoryStoreWorker();
    store.init({ windowMs: HOUR_MS });
    return (key) => store.increment(key);
  },
  'express-rate-limit': () => {
    const store = new MemoryStore();
    store.init({ windowMs: HOUR_MS });
    return (key) => store.increment(key);
  },
};

/** A check for each limit: an algorithm and a number for each minute. A peer counts fixed windows. */
export const severalLimits = {
  tidegate(url, limits) {
    const named = limits.map(([algorithm, count]) => [`${algorithm}-${count}`, `${algorithm} ${count}/minute`]);
    const limiter = new Limiter({ store: url, timeoutMs: 20_000, policies: Object.fromEntries(named) });
    return named.map(
      ([name]) =>
        (key) =>
          limiter.check(name, key),
    );
  },
  'rate-limiter-flexible'(url, limits) {
    const storeClient = new Redis(url);
    const limiter = ([, points], number) =>
      new RateLimiterRedis({ storeClient, points, duration: 60, keyPrefix: `p${number}` });
    return limits.map((limit, number) => settled(limiter(limit, number)));
  },
  async 'ioredis evalsha, auto-pipelining'(url, limits) {
    const redis = new Redis(url, { enableAutoPipelining: true });
    const digest = await redis.script('LOAD', SCRIPT);
    return limits.map((_, number) => (key) => redis.evalsha(digest, 1, `bare:${number}:${key}`, 60_000));
  },
};

/** A function of keys that sends what `add` adds to a pipeline for each of them. */
function pipelined(redis, add) {
  return (keys) => {
    const pipeline = redis.pipeline();
    for (const key of keys) add(pipeline, key);
    return pipeline.exec();
  };
}

/** Sends so many scripts in one pipeline. */
export const pipelines = {
  async 'bare INCR script, pipelined'(url) {
    const redis = new Redis(url);
    const digest = await redis.script('LOAD', SCRIPT);
    return pipelined(redis, (pipeline, key) => pipeline.evalsha(digest, 1, `bare:${key}`, HOUR_MS));
  },
  async 'flat GCRA script, pipelined'(url) {
    const redis = new Redis(url);
    const digest = await redis.script('LOAD', GCRA_SCRIPT);
    // 1,000,000 a second, a unit each microsecond.
    const numbers = Buffer.from(new Float64Array([1_000_000, 1, 1]).buffer);
    return pipelined(redis, (pipeline, key) => pipeline.evalshaBuffer(digest, 1, `gcra:${key}`, numbers));
  },
  async 'INCREX, pipelined'(url) {
    const redis = new Redis(url);
    const words = (key) => [`increx:${key}`, 'UBOUND', HIGH, 'PX', HOUR_MS, 'ENX'];
    // In a pipeline a command that the server does not know would be an answer like any other.
    await redis.call('INCREX', words('first'));
    return pipelined(redis, (pipeline, key) => pipeline.call('INCREX', words(key)));
  },
  async 'rate-limiter-flexible, pipelined'(url) {
    const redis = new Redis(url);
    // The limiter gives the client its script, as a command.
    const limiter = new RateLimiterRedis({ storeClient: redis, points: HIGH, duration: 3_600 });
    await limiter.consume('first');
    return pipelined(redis, (pipeline, key) => pipeline.rlflxIncr(`rlflx:${key}`, 1, 3_600, HIGH, 3_600));
  },
};
