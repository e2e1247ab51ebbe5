import type { native } from './native.js';

/** A key that has other limits than its policy. */
export interface OverriddenKey {
  readonly key: string;
  /** Its limits as a notation, or `'none'`. */
  readonly limits: string;
  /** When it has the limits of its policy again; missing where it keeps them. */
  readonly expiresAt?: Date;
}

/** As users see it. */
export function overriddenKeyFrom({ key, limits, expiresAt }: native.OverriddenKey): OverriddenKey {
  return expiresAt === undefined ? { key, limits } : { key, limits, expiresAt: new Date(expiresAt) };
}
