// Reports when a store is lost, refuses or is back, with one log line for each change and the change itself for a
// listener. It also logs the other warnings of the limiter.

import process from 'node:process';

import { asWarning, ConfigError, describe } from './errors.js';
import type { binding } from './native.js';

/** A store changed its state. Each change is reported once. */
export interface StoreChange {
  /** The store, without secrets. */
  readonly store: string;
  /** It does not answer, it answers with errors, or it answers again. */
  readonly state: 'lost' | 'refusing' | 'back';
  /** The event and its reason, in one sentence. */
  readonly message: string;
  /** The time at which it was lost. */
  readonly since: Date;
}

/** Takes log lines: `console` is one, and so are the loggers of most libraries. */
export interface Logger {
  /**
   * Called if a store is lost, refuses or may evict keys, if a hold is lost, if the memory had to forget a denial, if a
   * policy file has a flaw, and with `logRefusals` if a call is refused.
   */
  warn(message: string): unknown;
  /** Called if a store is back. */
  info(message: string): unknown;
}

/** Reports the changes of a limiter's stores. */
export class StoreChangeReporter {
  readonly #logger: Logger | false;
  readonly #onChange: ((change: StoreChange) => void) | undefined;

  constructor(logger: Logger | false | undefined, onChange: ((change: StoreChange) => void) | undefined) {
    if (logger !== undefined && logger !== false && !isLogger(logger)) {
      throw new ConfigError(`logger must be an object with warn and info, or false, not ${describe(logger)}`);
    }
    if (onChange !== undefined && typeof onChange !== 'function') {
      throw new ConfigError(`onChange must be a function, not ${describe(onChange)}`);
    }
    this.#logger = logger ?? processWarnings;
    this.#onChange = onChange;
  }

  warn(message: string): void {
    try {
      if (this.#logger !== false) this.#logger.warn(message);
    } catch (error) {
      process.emitWarning(asWarning(error));
    }
  }

  report({ store, state, message, since }: binding.StoreChange): void {
    const change = { store, state: state as StoreChange['state'], message, since: new Date(since) };
    try {
      if (this.#logger !== false) this.#logger[state === 'back' ? 'info' : 'warn'](message);
      this.#onChange?.(change);
    } catch (error) {
      // The application's code threw. That must not end the process because a store was lost.
      process.emitWarning(asWarning(error));
    }
  }
}

function isLogger(value: unknown): value is Logger {
  const { warn, info } = (value ?? {}) as Partial<Logger>;
  return typeof warn === 'function' && typeof info === 'function';
}

/** A warning of the process, with the name that all warnings of Tidegate have. */
export function emitWarning(message: string): void {
  process.emitWarning(message, 'TidegateWarning');
}

/** The default logger: Node prints the warnings of a process on stderr, and emits `process.on('warning')`. */
const processWarnings: Logger = { warn: emitWarning, info: emitWarning };
