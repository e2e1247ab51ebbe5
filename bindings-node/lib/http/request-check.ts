// What is asked about one request: each policy with its key, its cost and its class.

import type { CheckOptions } from '../call-options.js';
import type { Cost } from '../cost.js';
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
  readonly cost: Cost;
  /** Whether the options name its cost. */
  readonly namesCost: boolean;
  /** Its class. */
  priority?: string;
  /** What was decided about it with others. */
  decision?: Decision;
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
      checks.map(({ policy, key, cost, namesCost, priority }) => ({
        policy,
        key,
        cost: namesCost ? cost : undefined,
        meta,
        priority,
      })),
    );
  }
  return limiter.check(only.policy, only.key, withMeta(only, meta));
}

function withMeta({ cost, priority }: RequestCheck, meta: Meta): CheckOptions {
  return meta === undefined && priority === undefined ? { cost } : { cost, meta, priority };
}

/** Takes a hold; the denied Decision when there is no room. */
export async function takeHold(limiter: Limiter, check: RequestCheck, meta: Meta): Promise<Hold | Decision> {
  try {
    return await limiter.hold(check.policy, check.key, withMeta(check, meta));
  } catch (error) {
    if (error instanceof RateLimited) return error.decision;
    throw error;
  }
}
