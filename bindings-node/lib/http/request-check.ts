// One policy of a request, with its key and its cost.

import type { Cost } from '../cost.js';
import type { Decision } from '../decision.js';
import type { PolicyLike } from '../policy.js';

/** What the journal remembers of a request. */
export type Meta = string | Uint8Array | undefined;

/** A policy with the key and the cost of one request. */
export interface RequestCheck {
  readonly policy: PolicyLike;
  readonly key: string;
  readonly cost: Cost;
  /** Whether the options name its cost. */
  readonly namesCost: boolean;
  /** What was decided about it with others. */
  decision?: Decision;
}
