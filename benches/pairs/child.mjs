// Prints how many awaited checks a second one build of the Node package makes: see pairs.py.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const [checkout, url, flight] = process.argv.slice(2);
const require = createRequire(join(checkout, 'package.json'));
const { Limiter } = require(join(checkout, 'bindings-node/dist/index.js'));

const MILLISECONDS = 500;
const KEYS = Array.from({ length: 10_000 }, (_, number) => `user:${number}`);
const POLICY = 'gcra 1000000000/s';

const limiter = new Limiter({ store: url, timeoutMs: 5_000 });
let done = 0;

async function call(until) {
  while (performance.now() < until) {
    for (let index = 0; index < 16; index++) await limiter.check(POLICY, KEYS[done++ % 10_000]);
  }
}

async function run(length) {
  const began = performance.now();
  done = 0;
  await Promise.all(Array.from({ length: Number(flight) }, () => call(began + length)));
  return (done * 1_000) / (performance.now() - began);
}

await run(150);
console.log(await run(MILLISECONDS));
await limiter.close();
