// Prints how many awaited checks a second one build of the Node package makes: see pairs.py.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { callsOf, limitsOf } from '../node/traffic.mjs';

const [checkout, url, flightText, ...shape] = process.argv.slice(2);
const require = createRequire(join(checkout, 'package.json'));
const { Limiter } = require(join(checkout, 'bindings-node/dist/index.js'));
const { spread, keys, policies, algorithms } = Object.fromEntries(shape.map((word) => word.split('=')));

const MILLISECONDS = 500;
const flight = Number(flightText);
const POLICY = 'gcra 1000000000/s';

/** The policy and the key of each call of a caller. Without a shape no two callers share a key. */
function calls(caller) {
  if (spread) return callsOf(caller, flight, spread, Number(keys), Number(policies));
  return Array.from({ length: Math.floor(10_000 / flight) }, (_, number) => [0, `user:${number * flight + caller}`]);
}

const limits = spread ? limitsOf(algorithms, Number(policies)).map(([kind, count]) => `${kind} ${count}/minute`) : [POLICY];
const callers = Array.from({ length: flight }, (_, caller) => calls(caller));
const limiter = new Limiter({ store: url, timeoutMs: 5_000 });
let done = 0;

async function caller(calls, until) {
  for (let step = 0; performance.now() < until; ) {
    for (let index = 0; index < 16; index++, step++, done++) {
      const [policy, key] = calls[step % calls.length];
      await limiter.check(limits[policy], key);
    }
  }
}

async function run(length) {
  const began = performance.now();
  done = 0;
  await Promise.all(callers.map((calls) => caller(calls, began + length)));
  return (done * 1_000) / (performance.now() - began);
}

await run(150);
console.log(await run(MILLISECONDS));
await limiter.close();
