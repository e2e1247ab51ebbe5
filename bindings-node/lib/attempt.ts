import { ConfigError, checkText, describe } from './errors.js';
import type { binding } from './native.js';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** An attempt that the journal remembers. */
export interface Attempt {
  /** The time of the attempt, in milliseconds since 1970, exact to the microsecond. */
  readonly at: number;
  readonly allowed: boolean;
  /** The units that were asked for. */
  readonly cost: number;
  /** The metadata of the check, as text. */
  readonly meta: string | null;
  /** The metadata as bytes. */
  readonly metaBytes: Uint8Array | null;
}

/** Returns the metadata of a check as bytes. */
export function encodedMeta(meta: string | Uint8Array): Uint8Array {
  if (typeof meta === 'string') checkText(meta, 'meta');
  const bytes = typeof meta === 'string' ? encoder.encode(meta) : meta;
  if (!(bytes instanceof Uint8Array)) throw new ConfigError(`meta must be text or bytes, not ${describe(meta)}`);
  return bytes;
}

/** An attempt as users see it. */
export function attemptFrom({ at, allowed, cost, meta }: binding.Attempt): Attempt {
  return { at, allowed, cost, meta: meta === undefined ? null : decoder.decode(meta), metaBytes: meta ?? null };
}
