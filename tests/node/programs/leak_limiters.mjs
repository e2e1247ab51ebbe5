// Prints by how many MiB the process has grown while limiters were opened and closed.

import { Limiter } from 'tidegate';

const [, , store] = process.argv;

async function some(count) {
  for (let index = 0; index < count; index++) {
    const limiter = new Limiter({ store, prefix: `leak${process.pid}`, timeoutMs: 20_000 });
    await limiter.check('5/s', 'a');
    await limiter.close();
    const local = new Limiter();
    await local.check('5/s', 'a');
    if (index % 50 === 0) {
      globalThis.gc();
      // Finalizers run in turns of the event loop.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  globalThis.gc();
  await new Promise((resolve) => setTimeout(resolve, 50));
  globalThis.gc();
  return process.memoryUsage().rss;
}

const before = await some(300);
console.log((((await some(600)) - before) / 2 ** 20).toFixed(1));
