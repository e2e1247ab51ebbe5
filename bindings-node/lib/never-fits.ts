// The error of a call that no wait can help.

import type { Decision } from './decision.js';
import { CostError, shortened } from './errors.js';

/**
 * Returns the error for a call that its policy never admits, because it costs more than a limit ever has. `undefined`
 * for any other Decision, also for one of a limit that admits nothing at all.
 */
export function neverFits(decision: Decision): CostError | undefined {
  if (decision.allowed) return undefined;
  const state = decision.limits.find((one) => one.exceeded && one.retryAfterMs === null && one.limit > 0);
  if (state === undefined) return undefined;
  const part = state.cost <= state.limit ? ', and the class of the call leaves a part of it free' : '';
  return new CostError(
    `${shortened(decision.policy)} never admits a call of ${state.cost} ${state.unit ?? 'units'}: its limit has at most ${state.limit} at once${part}. ` +
      'Make the call smaller (for a call of an LLM, shorten the input, or allow fewer tokens in the answer), or raise the limit',
  );
}
