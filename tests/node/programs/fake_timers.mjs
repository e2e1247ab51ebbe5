// Checks while timers are fakes, like those of Jest, which run nothing until a test moves them.

import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import process from 'node:process';

const [, , store, when, how] = process.argv;

function install() {
  const fake = () => Object.assign(() => {}, how === 'clock' ? { clock: {} } : {});
  process.nextTick = fake();
  const names = ['queueMicrotask', 'setImmediate', 'setInterval', 'setTimeout'];
  for (const name of names) globalThis[name] = fake();
}

// Streams and modules of ECMAScript wait for ticks, so this uses `require` and `writeSync`.
const require = createRequire(import.meta.url);
if (when === 'before') install();
const { Limiter } = require('tidegate');
const limiter = new Limiter({ store, prefix: `fakes${process.pid}` });
// Something has run since the library was loaded.
for (let turn = 0; turn < 10; turn++) await Promise.resolve();
if (when === 'after') install();
for (let round = 0; round < 3; round++) {
  const decisions = await Promise.all(Array.from({ length: 10 }, (_, key) => limiter.check('9/minute', `${key}`)));
  writeSync(1, decisions.every(({ allowed }) => allowed) ? 'admitted ' : 'denied ');
}
process.exit(0);
