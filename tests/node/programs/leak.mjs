// Prints by how many MiB the process has grown over many checks. Some of them are denied and some fail.

import { Limiter } from 'tidegate';

const [, , store, checks] = process.argv;
const limiter = new Limiter({ store, prefix: `leak${process.pid}`, timeoutMs: 20_000, denyCacheMs: 0 });

async function some(count) {
  for (let done = 0; done < count; done += 250) {
    const calls = [];
    for (let index = 0; index < 250; index++) {
      const cost = index === 0 ? 0 : 1;
      calls.push(limiter.check('fixed-window 10/hour', `key${index % 100}`, { cost }).catch(() => {}));
    }
    await Promise.all(calls);
  }
}

function memory() {
  globalThis.gc();
  globalThis.gc();
  return process.memoryUsage().rss;
}

// The first round makes the one-time allocations, and fills the memory that V8 keeps for itself.
await some(Number(checks));
const before = memory();
await some(checks);
console.log(((memory() - before) / 2 ** 20).toFixed(1));
