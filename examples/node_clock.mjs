// A script: one policy of two limits admits, refuses, explains and admits again.
//
//     node examples/node_clock.mjs [store URL]

import { Limiter, ManualClock } from 'tidegate';

const clock = new ManualClock(Date.now());
const limiter = new Limiter({ store: process.argv[2] ?? 'memory://', policies: { login: '20/minute; 5/3s' }, clock });

for (let attempt = 1; attempt <= 6; attempt++) {
  const decision = await limiter.check('login', 'alice');
  const refused = decision.limits
    .filter((limit) => limit.exceeded)
    .map((limit) => `${limit.limit} in ${limit.periodMs} ms`);
  console.log(
    decision.allowed
      ? `attempt ${attempt}: allowed, ${decision.remaining} left`
      : `attempt ${attempt}: denied by ${refused.join(' and ')}, again in ${decision.retryAfterMs} ms`,
  );
  if (!decision.allowed) clock.advance(decision.retryAfterMs ?? 0);
}
console.log(`after waiting: ${(await limiter.check('login', 'alice')).allowed ? 'allowed' : 'denied'}`);
await limiter.close();
