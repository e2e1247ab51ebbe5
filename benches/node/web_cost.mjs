// The time that a limit adds to a request of Express in memory, without a server: the least of many short rounds, measured alternately.
//
//     node benches/node/web_cost.mjs

import { IncomingMessage, ServerResponse } from 'node:http';

import express from 'express';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/express';

const ROUNDS = 400;
const REQUESTS = 100;
/** Limits that are never reached. */
const MANY = 'fixed-window 1000000000/hour; fixed-window 1000000/second';

const options = {
  bare: undefined,
  tidegate: { policy: MANY },
  'two policies': { policy: [MANY, 'fixed-window 1000000000/day'] },
  functions: { policy: MANY, key: () => 'someone', cost: () => 1 },
};

function appOf(limits) {
  const app = express();
  if (limits !== undefined) app.use(rateLimit({ limiter: new Limiter(), ...limits }));
  return app.get('/', (_, response) => response.send('hello'));
}

/** Makes one request, as a server makes it. */
function request(app) {
  return new Promise((resolve) => {
    const given = new IncomingMessage({ remoteAddress: '203.0.113.9' });
    Object.assign(given, { method: 'GET', url: '/', headers: { host: 'testserver' } });
    const response = new ServerResponse(given);
    response.end = resolve;
    app(given, response);
  });
}

const apps = Object.entries(options).map(([name, limits]) => [name, appOf(limits)]);
const least = new Map(apps.map(([name]) => [name, Number.POSITIVE_INFINITY]));
for (let round = 0; round < ROUNDS; round++) {
  for (const [name, app] of apps) {
    const began = performance.now();
    for (let made = 0; made < REQUESTS; made++) await request(app);
    least.set(name, Math.min(least.get(name), ((performance.now() - began) / REQUESTS) * 1_000));
  }
}
const bare = least.get('bare');
const added = apps.slice(1).map(([name]) => `${name} +${(least.get(name) - bare).toFixed(1)} µs`);
console.log(`express  memory: ${bare.toFixed(1)} µs bare, ${added.join(', ')}`);
