// A refusal: its status, how long to wait, and a problem (RFC 9457). The core writes the problem. The numbers in it are worked
// out here in the same way as in the core, which `tests/http` proves.

import { NEVER, RETRY_AFTER } from '../array-layout.js';
import { type Decision, numbersOf } from '../decision.js';
import { native } from '../native.js';

/** The media type of a problem. */
export const MEDIA_TYPE: string = native.problemMediaType();

const MICROS_PER_SECOND = 1_000_000;
/** The wait for a missing store, in seconds. Most stores are back within one, and there is no better guess. */
const STORE_WAIT = 1;

/** The status: 429 when a quota is exceeded, 503 when the store is missing. */
export function status(decision: Decision | undefined): 429 | 503 {
  return decision === undefined || decision.unavailable ? 503 : 429;
}

/** How many whole seconds a refused client should wait, rounded up; `null` when waiting does not help. */
export function retryAfter(decision: Decision | undefined): number | null {
  if (decision === undefined) return STORE_WAIT;
  const wait = numbersOf(decision)[RETRY_AFTER];
  if (decision.unavailable) return Math.max(STORE_WAIT, Math.ceil(wait / MICROS_PER_SECOND));
  return wait === NEVER ? null : Math.max(1, Math.ceil(wait / MICROS_PER_SECOND));
}

/** The body, as JSON. It names policies, never keys. */
export function problem(decision: Decision | undefined): string {
  return native.problem(
    status(decision) === 503,
    retryAfter(decision),
    decision === undefined ? [] : violated(decision),
  );
}

/** The names of the policies that refused, each once. */
function violated(decision: Decision): string[] {
  const entries = decision.decisions.length === 0 ? [decision] : decision.decisions;
  const refused = entries.filter((entry) => !entry.allowed && !entry.unavailable);
  return [...new Set(refused.map((entry) => entry.policy))];
}
