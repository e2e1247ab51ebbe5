import type { native } from './native.js';

const text = new TextDecoder();

/** One remembered attempt. */
export interface Attempt {
  /** When it was, in milliseconds since 1970, to the microsecond. */
  readonly at: number;
  readonly allowed: boolean;
  /** The units it asked for. */
  readonly cost: number;
  /** What the caller said of it, as text. */
  readonly meta: string | null;
  /** The same as bytes. */
  readonly metaBytes: Uint8Array | null;
}

/** What the core remembers, as users see it. */
export function attempt({ at, allowed, cost, meta }: native.Attempt): Attempt {
  return { at, allowed, cost, meta: meta === undefined ? null : text.decode(meta), metaBytes: meta ?? null };
}
