// A Decision is settled once, by the limiter that made it or by one of the same store and prefix.

import { Decision, policyRefOf } from './decision.js';
import { ConfigError, describe, shortened } from './errors.js';

/** The entries that were settled. A list of its own, so that a Decision that is never settled costs nothing. */
const settled = new WeakSet<Decision>();

/** The entries of a Decision, which count as settled from now on. */
export function claimed(decision: Decision, limiter: string): readonly Decision[] {
  if (!(decision instanceof Decision)) {
    throw new ConfigError(`settle cannot take ${describe(decision)}: give it a Decision of this limiter`);
  }
  const entries = decision.decisions.length === 0 ? [decision] : decision.decisions;
  for (const entry of entries) {
    if (policyRefOf(entry).limiter !== limiter) {
      throw new ConfigError(
        'settle was given a Decision of another limiter: settle it with the limiter that made it, or with one of the same ' +
          'store and prefix',
      );
    }
    if (settled.has(entry)) {
      const policy = JSON.stringify(shortened(entry.policy));
      throw new ConfigError(`this Decision about ${policy} was settled before: a Decision is settled once`);
    }
  }
  for (const entry of entries) settled.add(entry);
  return entries;
}

/** Settles claimed entries. One that could not be settled may be settled again. */
export async function settleEach(
  entries: readonly Decision[],
  settle: (entry: Decision) => Promise<unknown>,
): Promise<void> {
  const attempt = async (entry: Decision): Promise<void> => {
    try {
      await settle(entry);
    } catch (error) {
      settled.delete(entry);
      throw error;
    }
  };
  await Promise.all(entries.map(attempt));
}
