// The common parts of the stores for other packages.

import type { Decision } from './decision.js';
import { ConfigError, describe, StoreError } from './errors.js';
import { checkOptions } from './given-options.js';
import { warnOfMemory } from './http/processes.js';
import { kept } from './kept.js';
import { checkTarget, type Limiter } from './limiter.js';
import { Limit, Policy } from './policy.js';
import { unwrapped } from './tracing.js';

/** The options of a store. */
export interface PeerStoreOptions {
  /** The limiter that counts. */
  limiter: Limiter;
  /** The prefix of its keys. If several stores count in one place, each needs its own prefix. */
  prefix?: string | undefined;
}

/** The options with their defaults. */
type StoreOptions = PeerStoreOptions & { readonly prefix: string };

/** Checks the options and adds their defaults. */
export function storeOptions(given: PeerStoreOptions, where: string, usual: string): StoreOptions {
  const { limiter, prefix = usual } = checkOptions(given, ['limiter', 'prefix'], where);
  checkTarget({ limiter, prefix }, where);
  warnOfMemory(unwrapped(limiter));
  return { limiter, prefix };
}

/** Checks a number of the other package, which may come from a limit that its user has written. */
export function numberOfHits(given: number, what: string, where: string): number {
  if (typeof given === 'number' && !Number.isNaN(given)) return given;
  throw new ConfigError(
    `${where}: ${what} must be a number of hits or of milliseconds, not ${describe(given)}. The limits of that package count ` +
      'no units; policies of tidegate do, such as "100 tokens/minute"',
  );
}

/** Returns the Decision, or throws if the store could not be asked. The other package then decides what to do with the request. */
export function answered(decision: Decision): Decision {
  if (decision.unavailable) throw new StoreError('the store could not be asked, and onStoreError is closed');
  return decision;
}

/** The most policies to keep, because windows and limits may depend on the request. */
const MAX_POLICIES = 1000;

const policies = new Map<string | number, Policy>();

/** Returns the policy of an id, and makes it at the first call. */
export function keptPolicy(id: string | number, make: () => Policy): Policy {
  if (policies.size >= MAX_POLICIES && !policies.has(id)) policies.clear();
  return kept(policies, id, make);
}

/** More hits than any window has. */
export const MAX_HITS = 1_000_000_000;
/** The default of the packages. */
export const WINDOW_MS = 60_000;

/** Returns a policy that counts hits in windows of this length, and refuses none. */
export function windowOf(ms: number): Policy {
  return keptPolicy(ms, () => new Policy([new Limit('fixed-window', MAX_HITS, { period: ms })]));
}
