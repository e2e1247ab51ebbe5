// The names of options: an option that is not read limits no request, so it is an error that says the nearest right one.

import { ConfigError, describe, shortened } from '../errors.js';
import { isRecord } from '../given-options.js';
import { native } from '../native.js';

/** "did you mean policy? It has …": what an error about an unknown name goes on with. */
export function knownNames(given: string, names: Iterable<string>): string {
  const all = [...names];
  const near = native.didYouMean(given, all).slice(2);
  return `${near}${near && ' '}It has ${all.join(', ')}`;
}

/** Throws for options that are no object, for a name that does not exist, and for a value that is null. */
export function checkOptions(options: unknown, names: Iterable<string>, where: string): void {
  if (!isRecord(options)) {
    throw new ConfigError(
      `${where}: give options, an object with ${[...names].join(', ')}; this is ${describe(options)}`,
    );
  }
  const known = new Set(names);
  for (const [name, value] of Object.entries(options)) {
    if (!known.has(name)) {
      throw new ConfigError(`${where} has no option ${shortened(name)}: ${knownNames(name, known)}`);
    }
    if (value === null) {
      throw new ConfigError(`${where}: the option ${name} cannot be null: leave it out for its default`);
    }
  }
}
