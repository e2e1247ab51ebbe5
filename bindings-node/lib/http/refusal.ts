// What a refusal says: its status, how long to wait, and a problem (RFC 9457). The core writes the problem; the numbers
// that go into it are worked out here as the core does, which `tests/http` proves.

import { type Decision, numbersOf, RETRY } from '../decision.js';
import { native } from '../native.js';

/** The media type of a problem. */
export const MEDIA_TYPE: string = native.problemMediaType();

const MICROS = 1_000_000;
/** A missing store is mostly back within a second, and nobody knows better. */
const STORE_IS_BACK = 1;

/** The status: 429 when a quota is exceeded, 503 when the store is missing. */
export function status(decision: Decision | undefined): 429 | 503 {
  return decision === undefined || decision.unavailable ? 503 : 429;
}

/** How many whole seconds a refused client is told to wait, never less than it must; `null` is for ever. */
export function retryAfter(decision: Decision | undefined): number | null {
  if (decision === undefined) return STORE_IS_BACK;
  const wait = numbersOf(decision)[RETRY] as number;
  if (decision.unavailable) return Math.max(STORE_IS_BACK, Math.ceil(wait / MICROS));
  return wait < 0 ? null : Math.max(1, Math.ceil(wait / MICROS));
}

/** The body, as JSON. It names policies, never keys. */
export function problem(decision: Decision | undefined): string {
  return native.problem(status(decision) === 503, retryAfter(decision), decision === undefined ? [] : violated(decision));
}

/** The names of the policies that refused, each once. */
function violated(decision: Decision): string[] {
  const entries = decision.decisions.length === 0 ? [decision] : decision.decisions;
  const refused = entries.filter((entry) => !entry.allowed && !entry.unavailable);
  return [...new Set(refused.map((entry) => entry.policy))];
}
