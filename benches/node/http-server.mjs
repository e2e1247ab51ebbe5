// One Express process of `http.mjs`: bare, or behind a limiter. It prints its port, and then, for each line of its input, the CPU
// time it has used.

import process from 'node:process';
import { createInterface } from 'node:readline';
import express from 'express';

const [, , contender, url] = process.argv;
const MANY = 1_000_000_000;

const contenders = {
  bare: async () => undefined,

  async tidegate() {
    const { Limiter } = await import('tidegate');
    const { rateLimit } = await import('tidegate/express');
    const limiter = new Limiter({ store: url, policies: { api: `${MANY}/minute; ${MANY}/3s` } });
    return rateLimit({ limiter, policy: 'api' });
  },

  async 'tidegate, memory'() {
    const { Limiter } = await import('tidegate');
    const { rateLimit } = await import('tidegate/express');
    const limiter = new Limiter({ policies: { api: `${MANY}/minute; ${MANY}/3s` } });
    return rateLimit({ limiter, policy: 'api' });
  },

  // It has no middleware of its own: one limit, and the headers are set here.
  async 'rate-limiter-flexible'() {
    const { RateLimiterRedis } = await import('rate-limiter-flexible');
    const { Redis } = await import('ioredis');
    const limiter = new RateLimiterRedis({ storeClient: new Redis(url), points: MANY, duration: 60 });
    return async (request, response, next) => {
      const { remainingPoints, msBeforeNext } = await limiter.consume(request.ip);
      response.setHeader('X-RateLimit-Limit', MANY);
      response.setHeader('X-RateLimit-Remaining', remainingPoints);
      response.setHeader('X-RateLimit-Reset', Math.ceil((Date.now() + msBeforeNext) / 1000));
      next();
    };
  },

  async 'express-rate-limit'() {
    const { rateLimit } = await import('express-rate-limit');
    const { RedisStore } = await import('rate-limit-redis');
    const { Redis } = await import('ioredis');
    const client = new Redis(url);
    const store = new RedisStore({ sendCommand: (...words) => client.call(...words) });
    return rateLimit({ windowMs: 60_000, limit: MANY, standardHeaders: 'draft-8', legacyHeaders: true, store });
  },
};

const app = express();
const middleware = await contenders[contender]();
if (middleware !== undefined) app.use(middleware);
app.get('/', (_request, response) => response.send('hello'));
const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port));

createInterface({ input: process.stdin })
  .on('line', () => {
    const { user, system } = process.cpuUsage();
    console.log(user + system);
  })
  .on('close', () => process.exit());
