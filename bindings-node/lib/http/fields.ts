// The fields that announce limits. The core writes the parts that depend on a policy alone, once for each policy. The numbers
// of a Decision are added here, because a call into the core for every request would cost as much as the check. `tests/http`
// proves that the result is the core's.

import { DecisionField, Special } from '../../binding/index.js';
import { announcementOf, bindingOf, type Decision, numbersOf, partsOf, policyRefOf } from '../decision.js';
import { ConfigError, describe } from '../errors.js';
import { native, throwIfFailed } from '../native.js';
import type { PolicyRef } from '../policy.js';
import { retryAfter } from './refusal.js';

/**
 * The fields that announce the limits: those of the IETF draft (its newest revision, or the named one), the older
 * X-RateLimit fields, both, or none. Revisions 10 and 11 have one form.
 */
export type HeaderChoice = 'both' | 'ietf' | 'ietf-10' | 'ietf-11' | 'legacy' | 'off';

/** Throws if the value is no choice of fields. */
export function checkHeaders(headers: unknown): void {
  if (typeof headers !== 'string') {
    throw new ConfigError(`headers must be a text, such as 'both', not ${describe(headers)}`);
  }
  throwIfFailed(native.headerChoice(headers));
}

/** The largest whole number of a structured field has 15 digits. */
const LARGEST = 999_999_999_999_999;
const MICROS_PER_SECOND = 1_000_000;

/** Sets a field of a target. One function for all requests: a closure for each would cost more than the field. */
export type SetField<Target> = (target: Target, name: string, value: string) => unknown;

/**
 * Sets the fields of an answer, in order. `wait` is the `Retry-After` of a refusal, `null` if waiting does not help, or
 * undefined for an admitted request. `policies` are those of its route. A refusal may leave some unasked, but
 * `RateLimit-Policy` must be the same text on every answer of the route.
 */
export function announce<Target>(
  decisions: readonly Decision[],
  which: HeaderChoice,
  wait: number | null | undefined,
  setField: SetField<Target>,
  target: Target,
  policies: readonly PolicyRef[] = NO_POLICIES,
): void {
  if (which !== 'off') {
    const announced = announcedOf(decisions);
    if (which !== 'legacy') {
      const items = policyItems(policies, decisions);
      if (items !== '') setField(target, 'RateLimit-Policy', items);
      const [only, second] = announced;
      if (only !== undefined) {
        setField(target, 'RateLimit', second === undefined ? limitItem(only) : joined(announced, limitItem));
      }
    }
    const lead = which === 'both' || which === 'legacy' ? leading(announced) : undefined;
    if (lead !== undefined) {
      setField(target, 'X-RateLimit-Limit', String(lead.limit));
      setField(target, 'X-RateLimit-Remaining', String(lead.remaining));
      setField(target, 'X-RateLimit-Reset', String(resetAt(lead)));
    }
  }
  if (wait !== undefined && wait !== null) setField(target, 'Retry-After', String(wait));
}

/** Sets a field of a record. */
export function setInRecord(fields: Record<string, string>, name: string, value: string): void {
  fields[name] = value;
}

const NONE: readonly Decision[] = [];
const NO_POLICIES: readonly PolicyRef[] = [];

/** Returns the items of all limits of these policies and of the asked ones, each policy once. A shadow policy has none. */
function policyItems(policies: readonly PolicyRef[], decisions: readonly Decision[]): string {
  const [only] = decisions;
  if (policies.length === 0 && decisions.length === 1 && only !== undefined && only.decisions.length === 0) {
    return announcementOf(only)?.items ?? '';
  }
  const listed = new Map(policies.map((policy) => [policy.name, policy.announcement]));
  // The asked policies replace the listed ones, because a reload may have changed them.
  for (const decision of decisions) {
    for (const entry of partsOf(decision)) listed.set(entry.policy, announcementOf(entry));
  }
  return joined(listed.values(), (announcement) => announcement?.items ?? '');
}

/** Joins the texts of a list, without the empty ones. */
function joined<One>(list: Iterable<One>, textOf: (one: One) => string): string {
  let all = '';
  for (const one of list) {
    const text = textOf(one);
    if (text !== '') all += all === '' ? text : `, ${text}`;
  }
  return all;
}

/** Returns one Decision for each announced policy. If a policy has two keys, it is the one nearer to a refusal. */
function announcedOf(decisions: readonly Decision[]): readonly Decision[] {
  const [only] = decisions;
  if (only === undefined) return NONE;
  if (decisions.length === 1 && only.decisions.length === 0) return isAnnounced(only) ? decisions : NONE;
  const announced: Decision[] = [];
  for (const decision of decisions) {
    for (const entry of partsOf(decision)) {
      if (!isAnnounced(entry)) continue;
      const at = announced.findIndex((known) => known.policy === entry.policy);
      if (at < 0) announced.push(entry);
      else announced[at] = leading([announced[at] as Decision, entry]) ?? entry;
    }
  }
  return announced;
}

/** True if it is announced. A shadow policy limits no client, and without its store a policy has no numbers. */
function isAnnounced(decision: Decision): boolean {
  return policyRefOf(decision).announcement !== undefined && !decision.unavailable;
}

/** Returns the Decision that leads: the first refusal, or else the one with least left in proportion. */
export function leading(decisions: readonly Decision[]): Decision | undefined {
  if (decisions.length < 2) return decisions[0];
  return decisions.find((decision) => !decision.allowed) ?? decisions.reduce((a, b) => (hasLess(b, a) ? b : a));
}

function hasLess(a: Decision, b: Decision): boolean {
  const [left, right] = [a.remaining * Math.max(b.limit, 1), b.remaining * Math.max(a.limit, 1)];
  if (left <= Number.MAX_SAFE_INTEGER && right <= Number.MAX_SAFE_INTEGER) return left < right;
  return BigInt(a.remaining) * BigInt(Math.max(b.limit, 1)) < BigInt(b.remaining) * BigInt(Math.max(a.limit, 1));
}

/** Returns the units left of the binding limit and, if waiting helps, the seconds until there are more. */
function limitItem(decision: Decision): string {
  const limit = announcementOf(decision)?.limits[bindingOf(decision)];
  if (limit === undefined) return '';
  const left = `${limit.beforeLeft}${Math.min(decision.remaining, LARGEST)}`;
  if (limit.beforeMore === undefined) return left;
  const more = decision.allowed
    ? numbersOf(decision)[DecisionField.MoreAfter]
    : (retryAfter(decision) ?? Special.Never);
  return more === Special.Never ? left : `${left}${limit.beforeMore}${more}`;
}

/** Returns the reset in Unix seconds, or the end of a block if that is later. The moment is stored, so it is the same between calls. */
function resetAt(decision: Decision): number {
  const numbers = numbersOf(decision);
  const resets = numbers[DecisionField.ResetAt];
  const wait = numbers[DecisionField.RetryAfter];
  const moment =
    decision.allowed || wait === Special.Never ? resets : Math.max(resets, numbers[DecisionField.At] + wait);
  return Math.ceil(moment / MICROS_PER_SECOND);
}
