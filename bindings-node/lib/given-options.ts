// Checks the options that a user gives. One that does not exist is a mistake, and must not be without effect.

import { ConfigError, describe, shortened, type TidegateError } from './errors.js';

type ErrorClass = new (message: string) => TidegateError;

/** Longer words are no typing mistakes. */
const MAX_LENGTH = 32;

/** The Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours. */
function distance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 0; i < from.length; i++) {
    const row = [i + 1];
    for (let j = 0; j < to.length; j++) {
      const at = (list: number[], index: number): number => list[index] as number;
      let least = Math.min(at(last, j) + Number(from[i] !== to[j]), at(last, j + 1) + 1, at(row, j) + 1);
      const swapped = i > 0 && j > 0 && from[i] === to[j - 1] && from[i - 1] === to[j];
      if (swapped) least = Math.min(least, at(beforeLast, j - 1) + 1);
      row.push(least);
    }
    beforeLast = last;
    last = row;
  }
  return last[to.length] as number;
}

/** In lower case and without separators, as the names of other languages are. */
function normalized(name: string): string {
  return name.replaceAll(/[-_]/g, '').toLowerCase();
}

/** The name that is nearest to a mistyped one, if one is near. */
function nearest(given: string, names: readonly string[]): string | undefined {
  if (given.length > MAX_LENGTH) return undefined;
  const word = normalized(given);
  let [best, least]: [string | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const name of names) {
    const other = normalized(name);
    // "timeout" for "timeoutMs" is far in characters but near in meaning.
    const far = word.length >= 3 && other.startsWith(word) ? 1 : distance(word, other);
    const isNear = far <= Math.max(1, Math.floor(Math.min(word.length, other.length) / 3)) && far < other.length;
    if (isNear && far < least) [best, least] = [name, far];
  }
  return best;
}

/** What is said about an option that does not exist. */
function unknownOption(owner: string, name: string, names: readonly string[]): string {
  const near = nearest(name, names);
  const hint = near === undefined ? '' : `; did you mean ${near}?`;
  return `${owner} has no option ${shortened(name)}${hint}${hint === '' ? ':' : ''} It has ${names.join(', ')}`;
}

/**
 * Whether a value is an object with options by name: no list, and none whose contents are not names, such as a Map, a Date or a
 * Promise that was not awaited.
 */
export function isRecord(value: unknown): value is Record<string, unknown> {
  try {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
    for (const _ in value) return true;
    // An empty object, also of another realm.
    const prototype: unknown = Object.getPrototypeOf(value);
    return prototype === null || Object.getPrototypeOf(prototype) === null;
  } catch {
    // A Proxy that answers nothing.
    return false;
  }
}

/** Throws for options that are no object, and for one that its owner does not have. */
export function checkOptions(
  owner: string,
  options: unknown,
  names: readonly string[],
  example: string,
  Kind: ErrorClass = ConfigError,
): void {
  if (!isRecord(options)) {
    throw new Kind(`${owner} cannot take ${describe(options)}: it takes an object of options, as in { ${example} }`);
  }
  // Inherited ones too: they are read like the object's own.
  for (const name in options) {
    const isGiven = Object.hasOwn(options, name) || !(name in Object.prototype);
    if (isGiven && !names.includes(name)) throw new Kind(unknownOption(owner, name, names));
  }
}
