// Takes a hold, which is renewed for as long as the process lives, and goes.

import { Limiter } from 'tidegate';

const limiter = new Limiter({ store: process.argv[2], prefix: `exit${process.pid}`, timeoutMs: 20_000 });
await limiter.hold('concurrency 1 ttl 1s', 'a');
console.log('held');
