// What a function of the application throws, or rejects with.

import { describe } from '../errors.js';

/** A reason as an error. For frameworks nothing is no error, and for Express some texts are orders: the refused handler would run. */
export function asError(reason: unknown, where: string): Error {
  if (typeof reason === 'object' && reason !== null) return reason as Error;
  return new Error(`${where}: a function given as an option threw ${describe(reason)}, which is no error`, {
    cause: reason,
  });
}
