// The place of a notation. A policy with a name is one limit wherever it is used. A notation counts for its place
// alone, under a key that begins with the name of the place: the pattern of a route, never an order of creation.

import { ConfigError, shortened } from '../errors.js';
import { kept } from '../kept.js';
import { type Limiter, policyRefIn } from '../limiter.js';
import type { PolicyLike, PolicyRef } from '../policy.js';

/** The name of a place: the pattern of a route, or an empty text for the whole application. It may depend on the request. */
export type Place<Request> = string | ((request: Request) => string | Unrouted);

/** A place without a known route: another function calls the middleware, and the framework does not show the route of a request. */
export class Unrouted {
  constructor(
    readonly name: string,
    readonly application?: object | undefined,
  ) {}
}

const unnamed = new WeakMap<PolicyRef, boolean>();

/** True if a policy has no name but was written at the place of its use. */
export function isUnnamed(limiter: Limiter, policy: PolicyLike): boolean {
  return kept(unnamed, policyRefIn(limiter, policy), () => {
    const resolved = limiter.policy(policy);
    return resolved.name === String(resolved);
  });
}

/**
 * Returns the key that a limit counts under, by the rule of the core, which `tests/http` proves. `place` is undefined
 * for a policy with a name, and empty for a notation of the whole application.
 */
export function placedKey(place: string | undefined, key: string, method?: string): string {
  if (method !== undefined) return `${place ? part(place) : '""'} ${method} ${part(key)}`;
  if (place === undefined) return key.startsWith('"') ? part(key) : key;
  return place === '' ? part(key) : `${part(place)} ${part(key)}`;
}

/** Returns a part of a key, in quotation marks if it could be read as several. */
function part(text: string): string {
  if (!text.startsWith('"') && !text.includes(' ')) return text;
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

/** Returns the text of a route's pattern, which may be a text, a regular expression or a list of both. */
export function patternText(pattern: unknown): string {
  if (pattern === undefined || pattern === null || pattern === '/') return '';
  return Array.isArray(pattern) ? pattern.map(String).join(',') : String(pattern);
}

/** The users of notations without a known route, by limiter, application, place and policy. */
const claims = new WeakMap<object, WeakMap<object, Map<string, WeakRef<object>>>>();

/** Claims a notation for a user of it. Throws for a second one at the same time, which would share the budget in silence. */
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
