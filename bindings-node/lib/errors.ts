/** The stable codes, the same in Rust, Python and Node. */
export type ErrorCode =
  | 'policy_invalid'
  | 'policy_unknown'
  | 'cost_invalid'
  | 'key_invalid'
  | 'config_invalid'
  | 'store_unavailable'
  | 'store_timeout'
  | 'store_rejected'
  | 'closed'
  | 'rate_limited';

/** Where in a file or a text an error was found; lines and columns count from 1. */
export interface Place {
  /** The file, when there is one. */
  readonly file?: string;
  readonly line: number;
  /** In characters. */
  readonly column: number;
}

/** What the core says of an error. */
export interface Fault {
  code: string;
  message: string;
  place?: Place;
}

/** The base of every error that Tidegate throws. */
export class TidegateError extends Error {
  /** The stable code: what programs look at. */
  readonly code: ErrorCode;

  constructor(message: string, code: ErrorCode) {
    super(message);
    this.code = code;
  }

  static {
    // On the prototypes, as JavaScript's own errors have it, so that it does not show as a field.
    TidegateError.prototype.name = 'TidegateError';
  }
}

/** A policy, a limit, a notation or a policy file does not make sense, or the limiter has no policy of that name. */
export class PolicyError extends TidegateError {
  /** Where it was found: in the policy file, or in the notation. */
  readonly place: Place | undefined;

  constructor(message: string, code: ErrorCode = 'policy_invalid', place?: Place) {
    super(message, code);
    this.place = place;
  }

  static {
    PolicyError.prototype.name = 'PolicyError';
  }
}

/** A cost is no whole number from 1 to 2^53 - 1. */
export class CostError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'cost_invalid') {
    super(message, code);
  }

  static {
    CostError.prototype.name = 'CostError';
  }
}

/** A key is too long, or no text. */
export class KeyInvalid extends TidegateError {
  constructor(message: string, code: ErrorCode = 'key_invalid') {
    super(message, code);
  }

  static {
    KeyInvalid.prototype.name = 'KeyInvalid';
  }
}

/** A wrong value as messages show it. */
export function shown(value: unknown): string {
  return typeof value === 'object' && value !== null ? `a ${value.constructor?.name ?? 'object'}` : String(value);
}

/** A key that is a string and still no text. */
export function noText(): KeyInvalid {
  return new KeyInvalid('a key holds half a surrogate pair: it must be well-formed text');
}

/** What was given as a key is none. */
export function noKey(key: unknown): KeyInvalid {
  return typeof key === 'string' ? noText() : new KeyInvalid(`a key cannot be ${shown(key)}: it must be a string`);
}

/** What was given as a cost is none. */
export function noCost(cost: unknown): CostError {
  return new CostError(`a cost cannot be ${shown(cost)}: it must be a whole number from 1 to 2^53 - 1`);
}

/** A store URL or an option does not make sense. */
export class ConfigError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'config_invalid') {
    super(message, code);
  }

  static {
    ConfigError.prototype.name = 'ConfigError';
  }
}

/** The store could not be reached, did not answer in time, or answered with an error. */
export class StoreError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'store_unavailable') {
    super(message, code);
  }

  static {
    StoreError.prototype.name = 'StoreError';
  }
}

/** The limiter was closed before. */
export class ClosedError extends TidegateError {
  constructor(message = 'the limiter is closed: make a new one', code: ErrorCode = 'closed') {
    super(message, code);
  }

  static {
    ClosedError.prototype.name = 'ClosedError';
  }
}

type Class = new (message: string, code: ErrorCode, place?: Place) => TidegateError;

/** The class of each code; `tests/errors.json` is the same table for all languages. */
const CLASSES: Record<Exclude<ErrorCode, 'rate_limited'>, Class> = {
  policy_invalid: PolicyError,
  policy_unknown: PolicyError,
  cost_invalid: CostError,
  key_invalid: KeyInvalid,
  config_invalid: ConfigError,
  store_unavailable: StoreError,
  store_timeout: StoreError,
  store_rejected: StoreError,
  closed: ClosedError,
};

/** The error that a fault stands for. */
export function thrown(fault: Fault): TidegateError {
  const known: Record<string, Class | undefined> = CLASSES;
  const code = fault.code as ErrorCode;
  const Known = known[code];
  return Known === undefined ? new TidegateError(fault.message, code) : new Known(fault.message, code, fault.place);
}
