// Stores of your own: any database that reads a value with its version, and replaces it only if the version is the same.

import { Buffer } from 'node:buffer';
import { ConfigError, describe, rememberCause, thrown } from './errors.js';
import { release, retain } from './keep-alive.js';
import { type binding, native } from './native.js';

/** A version of a value. It never repeats for a key, not even after the value was deleted. */
export type Version = number | bigint | string | Uint8Array;

/** A value that stands in the store. */
export interface Value {
  version: Version;
  data: Uint8Array;
}

/** A change of one key. */
export interface Change {
  key: Uint8Array;
  /** The version that it replaces. Null: there must be no value. */
  version: Version | null;
  /** The new value. Null deletes the key. */
  data: Uint8Array | null;
  /** In milliseconds since 1970. From then on the store may drop the value. It must not drop it before. */
  expiresAt: number;
}

/** A store of your own, for the option `store` of a limiter. */
export interface KeyValueStore {
  /**
   * Reads at most 256 keys of at most 64 bytes. `now` is the clock of the store in milliseconds since 1970, or null. `values` has
   * a value or null for each key.
   */
  read(keys: Uint8Array[], timeoutMs: number): Promise<{ now: number | null; values: (Value | null)[] }>;
  /** Makes each change only if its key has that version. A result is true, or else the value that stands there, or null. */
  compareAndSwap(
    changes: Change[],
    timeoutMs: number,
  ): Promise<{ now: number | null; results: (true | Value | null)[] }>;
  /** The keys that begin with these bytes, for `clearAll` and `overrides`. */
  scan?(prefix: Uint8Array): AsyncIterable<Uint8Array>;
  /** A value that changes when the store restarts, so that leases can give units back. */
  epoch?(): Promise<Version>;
  /** True promises that `compareAndSwap` makes all changes of a call or none, so that `checkAll` is atomic. */
  readonly allOrNone?: boolean | undefined;
  /** The most bytes of a value. Default: 256,000. */
  readonly maxValue?: number | undefined;
}

/**
 * Throw it in `compareAndSwap` if the changes certainly did not happen. They are tried again until the deadline. Any other error
 * means that they may have happened.
 */
export class NotApplied extends Error {}
NotApplied.prototype.name = 'NotApplied';

/** An answer that has not the form it must have. */
class WrongAnswer extends Error {}

const DEFAULT_MAX_VALUE = 256_000;
/** A clock beyond this is in other units than milliseconds. */
const MAX_NOW = 9e12;

/** True if a value has the methods of a store. */
export function isStore(value: unknown): value is KeyValueStore {
  return typeof value === 'object' && value !== null && 'compareAndSwap' in value;
}

/** Returns the native side of a store. */
export function ownStoreOf(store: KeyValueStore): binding.OwnStore {
  const name = nameOf(store);
  for (const method of ['read', 'compareAndSwap'] as const) {
    if (typeof store[method] !== 'function')
      throw new ConfigError(`${name} has no method ${method}, which a store needs`);
  }
  const { maxValue = DEFAULT_MAX_VALUE } = store;
  if (!Number.isSafeInteger(maxValue) || maxValue <= 0) {
    throw new ConfigError(`maxValue of ${name} cannot be ${describe(maxValue)}: it must be a number of bytes`);
  }
  const ask = (question: binding.StoreQuestion) => void answer(own, store, question);
  const own = native.OwnStore.create(
    name,
    store.scan !== undefined,
    store.epoch !== undefined,
    store.allOrNone === true,
    maxValue,
    ask,
  );
  return own;
}

/** Tests a store, in about two seconds. It rejects with a sentence that names the defect. */
export function verifyStore(store: KeyValueStore): Promise<void> {
  const owner = {};
  const verified = new Promise<void>((resolve, reject) => {
    const done = (defect?: binding.ErrorValue | null) => (defect ? reject(thrown(defect)) : resolve());
    const failed = ownStoreOf(store).verify(done);
    if (failed) done(failed);
  });
  retain(owner);
  return verified.finally(() => release(owner));
}

function nameOf(store: object): string {
  const name: unknown = store.constructor?.name;
  return typeof name === 'string' && name !== '' && name !== 'Object' ? name : 'the store';
}

/** Calls the method of a question and answers it. */
async function answer(own: binding.OwnStore, store: KeyValueStore, question: binding.StoreQuestion): Promise<void> {
  const { id, keys, changes, prefix, timeoutMs } = question;
  try {
    if (keys) {
      const { now, list } = parts(await store.read(keys, timeoutMs), 'values');
      own.answerValues(id, now, list.map(valueFrom));
    } else if (changes) {
      const { now, list } = parts(await store.compareAndSwap(changes.map(changeFrom), timeoutMs), 'results');
      const standing = list.map((result) => (result === true ? null : valueFrom(result)));
      own.answerSwaps(
        id,
        now,
        list.map((result) => result === true),
        standing,
      );
    } else if (prefix) {
      const found: Uint8Array[] = [];
      for await (const key of (store.scan as NonNullable<KeyValueStore['scan']>)(prefix)) found.push(bytesFrom(key));
      own.answerKeys(id, found);
    } else {
      own.answerEpoch(id, encoded(await (store.epoch as NonNullable<KeyValueStore['epoch']>)()));
    }
  } catch (error) {
    if (error instanceof WrongAnswer) own.fail(id, error.message, undefined, false);
    else own.fail(id, messageOf(error), rememberCause(error), error instanceof NotApplied);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : describe(error);
}

function wrong(given: unknown, expected: string): WrongAnswer {
  return new WrongAnswer(`${describe(given)}: it must return ${expected}`);
}

/** The clock of an answer, and its list. */
function parts(answer: unknown, name: 'values' | 'results'): { now: number | undefined; list: unknown[] } {
  const { now, [name]: list } = (answer ?? {}) as { now?: unknown } & Record<typeof name, unknown>;
  if (!Array.isArray(list)) throw wrong(answer, `{ now, ${name} } with an array of ${name}`);
  if (now === null || now === undefined) return { now: undefined, list };
  if (typeof now === 'number' && now >= 0 && now < MAX_NOW) return { now, list };
  throw wrong(now, 'now in milliseconds since 1970, or null if it has no clock');
}

function valueFrom(value: unknown): binding.StoredValue | null {
  if (value === null || value === undefined) return null;
  if (typeof value !== 'object') throw wrong(value, 'true for a change that was done, or { version, data }, or null');
  const { version, data } = value as Partial<Value>;
  return { version: encoded(version), data: bytesFrom(data) };
}

function bytesFrom(data: unknown): Uint8Array {
  if (data instanceof Uint8Array) return data;
  throw wrong(data, 'keys and data as Uint8Array');
}

/** A version as bytes: a letter for its type, and its text. */
function encoded(version: unknown): Uint8Array {
  if (version instanceof Uint8Array) return Buffer.concat([Buffer.from('b'), version]);
  if (typeof version === 'bigint') return Buffer.from(`i${version}`);
  if (typeof version === 'number' && Number.isSafeInteger(version)) return Buffer.from(`n${version}`);
  if (typeof version === 'string' && version.isWellFormed()) return Buffer.from(`s${version}`);
  throw wrong(version, 'a version that is a whole number, a bigint, a string or a Uint8Array');
}

function decoded(bytes: Uint8Array): Version {
  const text = () => Buffer.from(bytes.subarray(1)).toString();
  if (bytes[0] === 0x62) return bytes.slice(1);
  if (bytes[0] === 0x69) return BigInt(text());
  return bytes[0] === 0x6e ? Number(text()) : text();
}

function changeFrom({ key, version, data, expiresAt }: binding.StoredChange): Change {
  return { key, version: version ? decoded(version) : null, data: data ?? null, expiresAt };
}
