// Checks the options that a user gives. One that does not exist is a mistake, and must not be without effect.

import { ConfigError, describe, shortened, type TidegateError } from './errors.js';
import { native } from './native.js';

type ErrorClass = new (message: string) => TidegateError;

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
    if (!isGiven || names.includes(name)) continue;
    const near = native.didYouMean(name, [...names]);
    throw new Kind(`${owner} has no option ${shortened(name)}${near || ':'} It has ${names.join(', ')}`);
  }
}
