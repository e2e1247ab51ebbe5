import { ConfigError, describe } from './errors.js';

/** What cancels a call. The `AbortSignal` of the platform is one; only this part of it is used. */
export interface CancelSignal {
  readonly aborted: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: so the platform declares it
  readonly reason: any;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** Throws for what is no signal. */
export function checkSignal(signal: CancelSignal | undefined): void {
  if (signal === undefined) return;
  const { aborted, addEventListener, removeEventListener } = (signal ?? {}) as Partial<CancelSignal>;
  const listens = typeof addEventListener === 'function' && typeof removeEventListener === 'function';
  if (typeof aborted !== 'boolean' || !listens) {
    throw new ConfigError(`signal cannot be ${describe(signal)}: give an AbortSignal, as controller.signal is`);
  }
}
