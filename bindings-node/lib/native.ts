// The compiled core. Its types are generated and private: what users see is written in the other files.

import process from 'node:process';

import native = require('../binding/index.js');

import { type Fault, thrown } from './errors.js';

export { native };

/** Whether the event loop can watch a socket for an addon: Node's can, others only say so. */
export const WATCHES = !('bun' in process.versions) && !('deno' in process.versions);

/** Gives back what a native call said, or throws what went wrong: errors cross as values and get their class here. */
export function unwrap<T extends object>(said: T): Exclude<T, Fault> {
  if (isFault(said)) throw thrown(said);
  return said as Exclude<T, Fault>;
}

/** The same for calls that only say something when they fail. */
export function done(fault: Fault | null | undefined): void {
  if (fault) throw thrown(fault);
}

function isFault(said: object): said is Fault {
  return 'code' in said && 'message' in said;
}
