// What becomes of stores: one line for each change of state, and the change itself for whoever wants it.

import process from 'node:process';

import { ConfigError, shown } from './errors.js';
import type { native } from './native.js';

/** A store changed its state. Each change is told once. */
export interface StoreChange {
  /** The store, without secrets. */
  readonly store: string;
  /** It does not answer, it answers with errors, or it answers again. */
  readonly state: 'lost' | 'refusing' | 'back';
  /** What happened and why, in one sentence. */
  readonly message: string;
  /** Since when it is away; for `back`, since when it was. */
  readonly since: Date;
}

/** Who writes lines down: `console`, or what most logging libraries make. */
export interface Logger {
  /** A store is lost, or refuses. */
  warn(message: string): unknown;
  /** A store is back. */
  info(message: string): unknown;
}

/** Tells what becomes of stores. */
export class StoreChangeReporter {
  readonly #logger: Logger | false;
  readonly #onChange: ((change: StoreChange) => void) | undefined;

  constructor(logger: Logger | false | undefined, onChange: ((change: StoreChange) => void) | undefined) {
    if (logger !== undefined && logger !== false && !isLogger(logger)) {
      throw new ConfigError(`logger cannot be ${shown(logger)}: give an object with warn and info, or false`);
    }
    if (onChange !== undefined && typeof onChange !== 'function') {
      throw new ConfigError(`onChange cannot be ${shown(onChange)}: it must be a function`);
    }
    this.#logger = logger ?? warnings;
    this.#onChange = onChange;
  }

  tell({ store, state, message, since }: native.StoreChange): void {
    const change = { store, state: state as StoreChange['state'], message, since: new Date(since) };
    try {
      if (this.#logger !== false) this.#logger[state === 'back' ? 'info' : 'warn'](message);
      this.#onChange?.(change);
    } catch (error) {
      // Others' code: what it breaks must not end the process because a store was lost.
      process.emitWarning(error instanceof Error ? error : String(error));
    }
  }
}

function isLogger(value: unknown): value is Logger {
  const { warn, info } = (value ?? {}) as Partial<Logger>;
  return typeof warn === 'function' && typeof info === 'function';
}

function warning(message: string): void {
  process.emitWarning(message, 'TidegateWarning');
}

/** Where lines go when nobody is named: to the process, which shows them on stderr and tells `process.on('warning')`. */
const warnings: Logger = { warn: warning, info: warning };
