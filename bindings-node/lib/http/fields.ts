// The fields that announce limits. What of them depends on a policy alone the core says once; here the numbers of a
// Decision are put behind it, since a request has no time for a call into the core. `tests/http` proves that what comes of it
// is what the core would say.

import { AT, bindingOf, type Decision, numbersOf, policyRefOf, RESET, RESET_AT, RETRY } from '../decision.js';
import { retryAfter } from './refusal.js';

/** Which fields announce the limits: those of the IETF, the older X-RateLimit ones, both, or none. */
export type HeaderChoice = 'both' | 'ietf' | 'legacy' | 'off';

/** Names and values. */
export type Fields = readonly (readonly [name: string, value: string])[];

/** The largest whole number of a structured field has 15 digits. */
const LARGEST = 999_999_999_999_999;
const MICROS = 1_000_000;

/** Writes a field to whatever takes it. One function for all requests: a closure for each would cost more than the field. */
export type SetField<To> = (to: To, name: string, value: string) => unknown;

/** Writes the fields of an answer, in order. `wait`: what a refusal says about it; `null` when waiting does not help. */
export function announce<To>(
  decisions: readonly Decision[],
  which: HeaderChoice,
  wait: number | null | undefined,
  put: SetField<To>,
  to: To,
): void {
  const announced = which === 'off' ? NONE : announcing(decisions);
  const lead = leading(announced);
  if (lead !== undefined) {
    if (which !== 'legacy') {
      put(to, 'RateLimit-Policy', list(announced, policyItem));
      put(to, 'RateLimit', list(announced, limitItem));
    }
    if (which !== 'ietf') {
      put(to, 'X-RateLimit-Limit', String(lead.limit));
      put(to, 'X-RateLimit-Remaining', String(lead.remaining));
      put(to, 'X-RateLimit-Reset', String(resetAt(lead)));
    }
  }
  if (wait !== undefined && wait !== null) put(to, 'Retry-After', String(wait));
}

/** The same as a list. */
export function fields(decisions: readonly Decision[], which: HeaderChoice, wait: number | null | undefined): Fields {
  const fields: [string, string][] = [];
  announce(decisions, which, wait, collect, fields);
  return fields;
}

function collect(fields: [string, string][], name: string, value: string): void {
  fields.push([name, value]);
}

const NONE: readonly Decision[] = [];

/** One Decision for each policy that limits: of two keys of one policy the one that is nearer to a refusal. */
function announcing(decisions: readonly Decision[]): readonly Decision[] {
  const [only] = decisions;
  if (only === undefined) return NONE;
  if (decisions.length === 1 && only.decisions.length === 0) return isAnnounced(only) ? decisions : NONE;
  const announced: Decision[] = [];
  for (const decision of decisions) {
    for (const entry of decision.decisions.length === 0 ? [decision] : decision.decisions) {
      if (!isAnnounced(entry)) continue;
      const at = announced.findIndex((known) => known.policy === entry.policy);
      if (at < 0) announced.push(entry);
      else announced[at] = leading([announced[at] as Decision, entry]) ?? entry;
    }
  }
  return announced;
}

/** A policy in shadow limits nobody; one that nobody could ask about has nothing to say. */
function isAnnounced(decision: Decision): boolean {
  return policyRefOf(decision).announcement !== undefined && !decision.unavailable;
}

/** The one that leads: the first refusal, else the one with least left in proportion. */
export function leading(decisions: readonly Decision[]): Decision | undefined {
  if (decisions.length < 2) return decisions[0];
  return decisions.find((decision) => !decision.allowed) ?? decisions.reduce((a, b) => (hasLess(b, a) ? b : a));
}

function hasLess(a: Decision, b: Decision): boolean {
  const [left, right] = [a.remaining * Math.max(b.limit, 1), b.remaining * Math.max(a.limit, 1)];
  if (left <= Number.MAX_SAFE_INTEGER && right <= Number.MAX_SAFE_INTEGER) return left < right;
  return BigInt(a.remaining) * BigInt(Math.max(b.limit, 1)) < BigInt(b.remaining) * BigInt(Math.max(a.limit, 1));
}

function list(decisions: readonly Decision[], item: (decision: Decision) => string): string {
  const [only] = decisions;
  return decisions.length === 1 && only !== undefined ? item(only) : decisions.map(item).join(', ');
}

function policyItem(decision: Decision): string {
  return policyRefOf(decision).announcement?.limits[bindingOf(decision)]?.item ?? '';
}

/** What is left, and the seconds until there is more, when waiting helps. */
function limitItem(decision: Decision): string {
  const announcement = policyRefOf(decision).announcement;
  const left = `${announcement?.name};r=${Math.min(decision.remaining, LARGEST)}`;
  if (!announcement?.limits[bindingOf(decision)]?.hasWindow) return left;
  const more = decision.allowed ? Math.ceil((numbersOf(decision)[RESET] as number) / MICROS) : retryAfter(decision);
  return more === null ? left : `${left};t=${more}`;
}

/** Unix seconds. A stored moment, so it is the same between calls; the end of a block when that is later. */
function resetAt(decision: Decision): number {
  const numbers = numbersOf(decision);
  const resets = numbers[RESET_AT] as number;
  const wait = numbers[RETRY] as number;
  const moment = decision.allowed || wait < 0 ? resets : Math.max(resets, (numbers[AT] as number) + wait);
  return Math.ceil(moment / MICROS);
}
