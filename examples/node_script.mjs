// A script: check, acquire, hold, settle.
//
//     npm install tidegate
//     node node_script.mjs

import { Limiter } from 'tidegate';

const limiter = new Limiter({
  store: process.env.TIDEGATE_STORE ?? 'memory://',
  policies: { mails: '3/minute', calls: 'gcra 100/s burst 1', exports: 'concurrency 1', tokens: '1000/hour' },
});

for (let mail = 1; mail <= 4; mail++) {
  const decision = await limiter.check('mails', 'alice');
  console.log(decision.allowed ? `mail ${mail} is sent` : `mail ${mail} has to wait`);
}

// Waits for its turn.
for (let call = 1; call <= 3; call++) await limiter.acquire('calls', 'partner');
console.log('three calls are made');

await limiter.hold('exports', 'alice', async () => console.log('one export at a time'));

// The cost is known after the work.
const decision = await limiter.check('tokens', 'alice', { cost: 100 });
await limiter.settle(decision, 40);
console.log(`${(await limiter.peek('tokens', 'alice')).remaining} tokens are left`);

await limiter.close();
