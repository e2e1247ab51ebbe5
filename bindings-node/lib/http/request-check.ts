// What one request asks of the limiter.

import type { Decision } from '../decision.js';
import type { Hold } from '../hold.js';
import type { Limiter } from '../limiter.js';
import type { PolicyLike } from '../policy.js';
import { RateLimited } from '../rate-limited.js';

/** What the journal remembers of a request. */
export type Meta = string | Uint8Array | undefined;

/** A policy with the key and the cost of one request. */
export interface RequestCheck {
  readonly policy: PolicyLike;
  readonly key: string;
  readonly cost: number;
  /** Whether the options name its cost. */
  readonly namesCost: boolean;
}

/** Checks several policies as one Decision. */
export async function checkTogether(
  limiter: Limiter,
  checks: readonly RequestCheck[],
  meta: Meta,
): Promise<Decision | undefined> {
  const [only] = checks;
  if (only === undefined) return undefined;
  if (checks.length > 1) {
    return limiter.checkAll(
      checks.map(({ policy, key, cost, namesCost }) => ({ policy, key, cost: namesCost ? cost : undefined, meta })),
    );
  }
  const { policy, key, cost } = only;
  if (meta !== undefined) return limiter.check(policy, key, { cost, meta });
  return cost === 1 ? limiter.check(policy, key) : limiter.check(policy, key, { cost });
}

/** Takes a hold; the denied Decision when there is no room. */
export async function takeHold(limiter: Limiter, check: RequestCheck, meta: Meta): Promise<Hold | Decision> {
  const { policy, key, cost } = check;
  try {
    return await limiter.hold(policy, key, meta === undefined ? { cost } : { cost, meta });
  } catch (error) {
    if (error instanceof RateLimited) return error.decision;
    throw error;
  }
}
