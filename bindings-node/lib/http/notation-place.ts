// Where a notation is written. A policy with a name is one limit wherever it is used; a notation counts for its place alone, under
// a key that begins with the name of the place: the pattern of a route, never an order of creation.

import { ConfigError, shortened } from '../errors.js';
import { kept } from '../kept.js';
import { type Limiter, policyRefIn } from '../limiter.js';
import type { PolicyLike, PolicyRef } from '../policy.js';

/** The name of a place: the pattern of a route; empty for the whole application. It may depend on the request. */
export type Place<Request> = string | ((request: Request) => string | Unrouted);

/** A place in an application whose framework does not say on which route a request is, because another function calls it. */
export class Unrouted {
  constructor(
    readonly name: string,
    readonly application?: object | undefined,
  ) {}
}

const unnamed = new WeakMap<PolicyRef, boolean>();

/** Whether a policy has no name but was written where it is used. */
export function isUnnamed(limiter: Limiter, policy: PolicyLike): boolean {
  return kept(unnamed, policyRefIn(limiter, policy), () => {
    const resolved = limiter.policy(policy);
    return resolved.name === String(resolved);
  });
}

/**
 * The key under which a limit counts a key, by the rule of the core, which `tests/http` proves. `place` is undefined for a policy
 * with a name, and empty for a notation of the whole application.
 */
export function placedKey(place: string | undefined, key: string, method?: string): string {
  if (method !== undefined) return `${place ? part(place) : '""'} ${method} ${part(key)}`;
  if (place === undefined) return key.startsWith('"') ? part(key) : key;
  return place === '' ? part(key) : `${part(place)} ${part(key)}`;
}

/** A part of a key: in quotation marks where it could be read as several. */
function part(text: string): string {
  if (!text.startsWith('"') && !text.includes(' ')) return text;
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

/** The text of a route's pattern, which may be a text, a regular expression or a list of both. */
export function patternText(pattern: unknown): string {
  if (pattern === undefined || pattern === null || pattern === '/') return '';
  return Array.isArray(pattern) ? pattern.map(String).join(',') : String(pattern);
}

/** Who counts a notation where the route is not known, by limiter, application, place and policy. */
const claims = new WeakMap<object, WeakMap<object, Map<string, WeakRef<object>>>>();

/** Claims a notation for a user of it. A second one that lives at the same time would share its budget in silence. */
export function claim(limiter: Limiter, { name, application = limiter }: Unrouted, policy: string, user: object): void {
  const byApplication = kept(claims, limiter, () => new WeakMap<object, Map<string, WeakRef<object>>>());
  const users = kept(byApplication, application, () => new Map<string, WeakRef<object>>());
  const claimed = placedKey(name, policy);
  const known = users.get(claimed)?.deref();
  if (known === undefined) users.set(claimed, new WeakRef(user));
  else if (known !== user) {
    throw new ConfigError(
      `two middlewares have the notation ${JSON.stringify(shortened(policy))}, and other functions call them, so that their routes ` +
        'are not known: both would share one budget. Give the policy of one a name, as in ' +
        "new Policy('5/minute', { name: 'login' }), or name it in the limiter's policies",
    );
  }
}
