import type { binding } from './native.js';

/** A key that has other limits than its policy. */
export interface OverriddenKey {
  readonly key: string;
  /** Its limits as a notation, or `'none'`. */
  readonly limits: string;
  /** The time at which the key has the limits of its policy again. Missing if there is no such time. */
  readonly expiresAt?: Date;
}

/** Returns the key as users see it. */
export function overriddenKeyFrom({ key, limits, expiresAt }: binding.OverriddenKey): OverriddenKey {
  return expiresAt === undefined ? { key, limits } : { key, limits, expiresAt: new Date(expiresAt) };
}
