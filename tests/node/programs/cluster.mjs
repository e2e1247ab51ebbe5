// Three processes of a cluster drain one limit.

import cluster from 'node:cluster';
import { once } from 'node:events';

import { Limiter } from 'tidegate';

const [, , store, prefix = `cluster${process.pid}`] = process.argv;

if (cluster.isPrimary) {
  cluster.setupPrimary({ args: [store, prefix] });
  const counts = await Promise.all(
    [1, 2, 3].map(async () => {
      const worker = cluster.fork();
      const [[count]] = await Promise.all([once(worker, 'message'), once(worker, 'exit')]);
      return count;
    }),
  );
  console.log(counts.reduce((sum, count) => sum + count));
} else {
  const limiter = new Limiter({ store, prefix, timeoutMs: 20_000 });
  const calls = Array.from({ length: 100 }, () => limiter.check('fixed-window 100/hour', 'all'));
  const decisions = await Promise.all(calls);
  process.send(decisions.filter((decision) => decision.allowed).length, () => process.disconnect());
}
