import { ConfigError } from './errors.js';
import type { Policy } from './policy.js';

/** Throws for a policy with a `leaky-bucket`, which makes calls wait. `why` names the queue that waits already. */
export function refuseQueues(policy: Policy, name: string, why: string): void {
  if (policy.limits.every(({ algorithm }) => algorithm !== 'leaky-bucket')) return;
  throw new ConfigError(
    `the policy "${name}" is a leaky-bucket, which queues calls itself: ${why}. For the same pace write gcra with a burst of 1, as ` +
      'in "gcra 10/s burst 1"',
  );
}
