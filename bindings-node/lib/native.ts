// The compiled core. Its types are generated and private. The public interface is written in the other files.

import process from 'node:process';

import type * as binding from '../binding/index.js';

import { loadFailure } from './addon-failure.js';
import { ConfigError, type ErrorValue, type TidegateError, thrown } from './errors.js';

/** The types of the core. */
export type { binding };

// Node 20 is the first with this method. Without the check, the first key would end with an error about a function.
if (typeof String.prototype.isWellFormed !== 'function') {
  throw new ConfigError(`tidegate needs Node 20 or newer: this is Node ${process.versions.node}`);
}

export const native = loaded();

function loaded(): typeof binding {
  try {
    return require('../binding/index.js');
  } catch (error) {
    throw loadFailure(error, __dirname);
  }
}

/** True if the event loop can poll a socket for an addon. Node's can. Bun and Deno export the functions without effect. */
export const LOOP_CAN_POLL = !('bun' in process.versions) && !('deno' in process.versions);

/** Returns the result of a native call, or throws its error. Errors cross as values and get their class here. */
export function unwrap<T extends object>(result: T): Exclude<T, ErrorValue> {
  if ('code' in result && 'message' in result) throw thrown(result as unknown as ErrorValue);
  return result as Exclude<T, ErrorValue>;
}

/** Throws the error of a call that returns only an error. */
export function throwIfFailed(error: ErrorValue | null | undefined): void {
  if (error) throw thrown(error);
}

/** Fetches the error of an answer by its number. */
export function takeError(nativeLimiter: binding.NativeLimiter, number: number): TidegateError {
  const lost = { code: 'store_rejected', message: 'the error of this call was lost', didNotRun: false };
  return thrown(nativeLimiter.error(number) ?? lost);
}
