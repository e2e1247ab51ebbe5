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

/** The position of an error in a file or a text. Lines and columns count from 1. */
export interface SourceLocation {
  /** The file, when there is one. */
  readonly file?: string;
  readonly line: number;
  /** In characters. */
  readonly column: number;
}

/** An error of the core, before it has its class. */
export interface ErrorValue {
  code: string;
  message: string;
  place?: SourceLocation;
  /** True if the call certainly did not run. */
  didNotRun: boolean;
  /** The number of the error of a store of your own. */
  cause?: number | undefined;
}

/** The newest errors of stores of applications, by number. */
const CAUSES = new Map<number, unknown>();
const MAX_CAUSES = 100;
let lastCause = 0;

/** Keeps an error as the cause of one that comes back from the core. Returns its number. */
export function rememberCause(error: unknown): number {
  lastCause = (lastCause + 1) % 2 ** 31;
  CAUSES.set(lastCause, error);
  if (CAUSES.size > MAX_CAUSES) CAUSES.delete(CAUSES.keys().next().value as number);
  return lastCause;
}

/** The errors of calls that certainly did not run. */
const OF_NO_RUN = new WeakSet<object>();

/** True if the call of the error certainly did not run, so that it may be made again. */
export function didNotRun(error: unknown): boolean {
  return typeof error === 'object' && error !== null && OF_NO_RUN.has(error);
}

/**
 * The base of every error that Tidegate throws.
 * @group Errors
 */
export class TidegateError extends Error {
  /** The stable code. Compare this in your program, not the message. */
  readonly code: ErrorCode;

  constructor(message: string, code: ErrorCode) {
    super(message);
    this.code = code;
  }
}

/**
 * A policy, a limit, a notation or a policy file is not valid, or the limiter has no policy of that name.
 * @group Errors
 */
export class PolicyError extends TidegateError {
  /** The position of the error in the policy file or in the notation. */
  readonly place: SourceLocation | undefined;

  constructor(message: string, code: ErrorCode = 'policy_invalid', place?: SourceLocation) {
    super(message, code);
    this.place = place;
  }
}

/**
 * A cost is not a whole number from 1 to 2^53 - 1, or names other units than the policy counts.
 * @group Errors
 */
export class CostError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'cost_invalid') {
    super(message, code);
  }
}

/**
 * A key is too long, or not well-formed text.
 * @group Errors
 */
export class KeyInvalid extends TidegateError {
  constructor(message: string, code: ErrorCode = 'key_invalid') {
    super(message, code);
  }
}

/** The most characters of a text that a message shows. */
const MAX_SHOWN = 64;

/** Shortens a text for a message, to its first characters and its length. */
export function shortened(text: string): string {
  if (text.length <= MAX_SHOWN) return text;
  return `${text.slice(0, MAX_SHOWN).toWellFormed()}… (${text.length} characters)`;
}

/** Describes a wrong value for a message. It names only the type of an object or a function, which may hold anything. */
export function describe(value: unknown): string {
  if (typeof value === 'string') return mayBeUrl(value) ? 'a URL' : JSON.stringify(shortened(value));
  if (typeof value === 'object' && value !== null) return withArticle(nameOfKind(value));
  if (typeof value === 'bigint') return `${shortened(String(value))}n`;
  return typeof value === 'function' || typeof value === 'symbol' ? `a ${typeof value}` : shortened(String(value));
}

function nameOfKind(value: object): string {
  try {
    if (Array.isArray(value)) return 'array';
    const name: unknown = value.constructor?.name;
    return typeof name !== 'string' || name === '' || name === 'Object' ? 'object' : shortened(name);
  } catch {
    // A Proxy that answers nothing.
    return 'object';
  }
}

/** Turns a thrown value of the application into one that `process.emitWarning` takes. */
export function asWarning(thrown: unknown): Error | string {
  try {
    return thrown instanceof Error ? thrown : String(thrown);
  } catch {
    return describe(thrown);
  }
}

function withArticle(noun: string): string {
  return `${/^[aeiou]/i.test(noun) ? 'an' : 'a'} ${noun}`;
}

/** True if the text may be the URL of a store, which may hold a password. */
function mayBeUrl(text: string): boolean {
  const colon = text.indexOf(':');
  return text.includes('://') || (colon >= 0 && text.includes('@', colon));
}

/**
 * Returns a text, and throws for one with half a surrogate pair. Node-API would replace that half by another character, so that two
 * policies could share their usage, and a password would change.
 */
export function checkText(text: string, what: string, Kind: new (message: string) => Error = ConfigError): string {
  if (!text.isWellFormed()) throw new Kind(`${what} holds half a surrogate pair: it must be well-formed text`);
  return text;
}

/** The most bytes of a key, and of metadata. */
const MAX_BYTES = 65_536;

/** Throws for a key, or for metadata, that no call takes. */
export function checkConstant(given: string | Uint8Array, what: 'a key' | 'meta'): void {
  const Kind = what === 'meta' ? ConfigError : KeyInvalid;
  if (typeof given === 'string') checkText(given, what, Kind);
  const { length } = typeof given === 'string' ? new TextEncoder().encode(given) : given;
  if (length > MAX_BYTES) throw new Kind(`${what} has ${length} bytes: it may have at most ${MAX_BYTES}`);
}

/** Returns the error for a value that cannot be a key, such as a text that is not well-formed. */
export function invalidKey(key: unknown): KeyInvalid {
  if (typeof key !== 'string') return new KeyInvalid(`a key must be a string, not ${describe(key)}`);
  return new KeyInvalid('a key holds half a surrogate pair: it must be well-formed text');
}

/** Returns the error for a value that cannot be a cost. */
export function invalidCost(cost: unknown): CostError {
  return new CostError(
    `a cost must be a whole number from 1 to 2^53 - 1, or an object of such numbers by the names of units, not ${describe(cost)}`,
  );
}

/** Returns the error for a value that cannot be a number of units. */
export function unitError(name: string, value: unknown): CostError {
  return new CostError(
    `the cost of ${shortened(name)} must be a whole number from 0 to 2^53 - 1, not ${typeof value === 'string' ? 'a string' : describe(value)}`,
  );
}

/**
 * A store URL or an option is not valid.
 * @group Errors
 */
export class ConfigError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'config_invalid') {
    super(message, code);
  }
}

/**
 * The store could not be reached, did not answer in time, or answered with an error.
 * @group Errors
 */
export class StoreError extends TidegateError {
  constructor(message: string, code: ErrorCode = 'store_unavailable') {
    super(message, code);
  }
}

/**
 * The limiter is closed.
 * @group Errors
 */
export class ClosedError extends TidegateError {
  constructor(message = 'the limiter is closed: make a new one', code: ErrorCode = 'closed') {
    super(message, code);
  }
}

// The name is on the prototypes, as in JavaScript's own errors, so that it is not printed as a field.
const NAMED = { TidegateError, PolicyError, CostError, KeyInvalid, ConfigError, StoreError, ClosedError };
for (const [name, { prototype }] of Object.entries(NAMED)) prototype.name = name;

type ErrorClass = new (message: string, code: ErrorCode, place?: SourceLocation) => TidegateError;

/** The class of each code. `tests/errors.json` has the same table for all languages. */
const CLASSES: Record<Exclude<ErrorCode, 'rate_limited'>, ErrorClass> = {
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

/** Returns the error to throw for an error of the core, with the class of its code. */
export function thrown(error: ErrorValue): TidegateError {
  const classes: Record<string, ErrorClass | undefined> = CLASSES;
  const code = error.code as ErrorCode;
  const Known = classes[code];
  const { message, place } = error;
  const made = Known === undefined ? new TidegateError(message, code) : new Known(message, code, place);
  if (error.didNotRun) OF_NO_RUN.add(made);
  if (error.cause !== undefined && CAUSES.has(error.cause)) made.cause = CAUSES.get(error.cause);
  return made;
}
