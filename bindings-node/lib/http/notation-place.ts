// Where a notation is written. A policy with a name is one limit wherever it is used; a notation counts for its place alone, under
// a key that begins with the name of the place: the pattern of a route, never an order of creation.

import { ConfigError, shortened } from '../errors.js';
import { type Limiter, policyRefIn } from '../limiter.js';
import type { PolicyLike, PolicyRef } from '../policy.js';

/** The name of a place: the pattern of a route; empty for the whole application. It may depend on the request. */
export type Place<Request> = string | ((request: Request) => string);

const unnamed = new WeakMap<PolicyRef, boolean>();

/** Whether a policy has no name but was written where it is used. */
export function isUnnamed(limiter: Limiter, policy: PolicyLike): boolean {
  const ref = policyRefIn(limiter, policy);
  let known = unnamed.get(ref);
  if (known === undefined) {
    const resolved = limiter.policy(policy);
    known = resolved.name === String(resolved);
    unnamed.set(ref, known);
  }
  return known;
}

/** The text of a route's pattern, which may be a text, a regular expression or a list of both. */
export function patternText(pattern: unknown): string {
  if (pattern === undefined || pattern === null || pattern === '/') return '';
  return Array.isArray(pattern) ? pattern.map(String).join(',') : String(pattern);
}

/** The error for a notation whose place has no name that would stay the same. */
export function placeUnknown(adapter: string, why: string): ConfigError {
  return new ConfigError(
    `${adapter}: a notation counts for the place where it is written, but ${shortened(why)}: give the policy a name, as in ` +
      "new Policy('5/minute', { name: 'login' }), or name it in the limiter's policies",
  );
}
