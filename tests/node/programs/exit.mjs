// Checks once, closes nothing, and has nothing else to do.

import { Limiter } from 'tidegate';

const limiter = new Limiter({ store: process.argv[2], prefix: `exit${process.pid}`, timeoutMs: 20_000 });
console.log((await limiter.check('5/s', 'a')).allowed);
