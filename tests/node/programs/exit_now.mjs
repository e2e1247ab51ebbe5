// Ends while calls wait for their answers.

import { Limiter } from 'tidegate';

const limiter = new Limiter({ store: process.argv[2], prefix: `exit${process.pid}`, timeoutMs: 20_000 });
await limiter.ping();
for (let index = 0; index < 10_000; index++) limiter.check('5/s', `${index % 100}`).catch(() => {});
limiter.acquire('0/s', 'never', { timeoutMs: 60_000 }).catch(() => {});
console.log('going');
setTimeout(() => process.exit(0), 1);
