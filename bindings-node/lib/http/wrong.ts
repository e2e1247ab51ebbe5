// Errors of wrong use, and those that are the store's.

import { TidegateError } from '../index.js';

export type { TidegateError };

/** An error of wrong use. */
export function wrong(code: string, message: string): TidegateError {
  return new TidegateError(message, code);
}

/** Whether the store is to blame. By its code: another copy of this package has other classes. */
export function isStoreError(error: unknown): boolean {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && code.startsWith('store_');
}
