// Takes a hold, which is renewed while the process lives, and ends.

import { Limiter } from 'tidegate';

const limiter = new Limiter({ store: process.argv[2], prefix: `exit${process.pid}`, timeoutMs: 20_000 });
await limiter.hold('concurrency 1 ttl 1s', 'a');
console.log('held');
