// One Express process: bare, or behind a limiter of one or two limits with its headers. It prints its port.
//
//     node benches/node/http-app.mjs CONTENDER LIMITS REDIS_URL

import process from 'node:process';
import express from 'express';

const [, , contender, limits, url] = process.argv;
const MANY = 1_000_000_000;
// Seconds; so high a count that no request is denied.
const WINDOWS = limits === '2' ? [60, 3] : [60];

async function tidegate(store, options = { policy: 'api' }) {
  const { Limiter } = await import('tidegate');
  const { rateLimit } = await import('tidegate/express');
  const notation = WINDOWS.map((seconds) => `fixed-window ${MANY}/${seconds}s`).join('; ');
  const limiter = new Limiter({ store, policies: { api: notation, day: `fixed-window ${MANY}/day` } });
  return [rateLimit({ limiter, ...options })];
}

const contenders = {
  bare: () => [],
  tidegate: () => tidegate(url),
  'tidegate, memory': () => tidegate('memory://'),
  'two policies': () => tidegate(url, { policy: ['api', 'day'] }),
  functions: () => tidegate(url, { policy: 'api', key: () => 'someone', cost: () => 1 }),

  // It has no middleware of its own, so the headers are set here. Several limits are a union.
  async 'rate-limiter-flexible'() {
    const { RateLimiterRedis, RateLimiterUnion } = await import('rate-limiter-flexible');
    const { Redis } = await import('ioredis');
    const storeClient = new Redis(url);
    const limiters = WINDOWS.map(
      (duration) => new RateLimiterRedis({ storeClient, points: MANY, duration, keyPrefix: `flexible${duration}` }),
    );
    const union = new RateLimiterUnion(...limiters);
    const consume =
      limiters.length === 1
        ? (key) => limiters[0].consume(key)
        : async (key) => Object.values(await union.consume(key)).at(-1);
    return [
      async (request, response, next) => {
        const { remainingPoints, msBeforeNext } = await consume(request.ip);
        response.setHeader('X-RateLimit-Limit', MANY);
        response.setHeader('X-RateLimit-Remaining', remainingPoints);
        response.setHeader('X-RateLimit-Reset', Math.ceil((Date.now() + msBeforeNext) / 1000));
        next();
      },
    ];
  },

  // A middleware is one limit.
  async 'express-rate-limit'() {
    const { rateLimit } = await import('express-rate-limit');
    const { RedisStore } = await import('rate-limit-redis');
    const { Redis } = await import('ioredis');
    const client = new Redis(url);
    return WINDOWS.map((seconds) => {
      const store = new RedisStore({ sendCommand: (...words) => client.call(...words), prefix: `erl${seconds}:` });
      return rateLimit({
        windowMs: seconds * 1_000,
        limit: MANY,
        standardHeaders: 'draft-8',
        legacyHeaders: true,
        store,
      });
    });
  },
};

const app = express();
for (const middleware of await contenders[contender]()) app.use(middleware);
app.get('/', (_request, response) => response.send('hello'));
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));
