// One process that takes units until it is denied, and prints their number.

import { once } from 'node:events';
import process from 'node:process';
import { Limiter } from 'tidegate';

const [, , store, policy] = process.argv;
const limiter = new Limiter({ store, policies: { shared: policy }, timeoutMs: 20_000 });
await limiter.ping();
console.log('ready');
await once(process.stdin, 'data');
let taken = 0;
for (let more = true; more; ) {
  const decisions = await Promise.all(Array.from({ length: 16 }, () => limiter.check('shared', 'all')));
  taken += decisions.filter(({ allowed }) => allowed).length;
  more = decisions.every(({ allowed }) => allowed);
}
console.log(taken);
process.exit();
