// The names of options: an option that is not read limits no request, so it is an error that says the nearest right one.

import { ConfigError, describe, shortened } from '../errors.js';
import { isRecord } from '../given-options.js';

/** How many single changes make one text the other. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[b.length] as number;
}

/** The longest text that is compared: a longer one is no mistyped name. */
const MAX_COMPARED = 40;

/** The name that was probably meant; undefined when none is near. */
export function nearest(given: string, names: Iterable<string>): string | undefined {
  if (given.length > MAX_COMPARED) return undefined;
  const text = given.toLowerCase();
  let [found, least]: [string | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const name of names) {
    const known = name.toLowerCase();
    const contained = text.length > 3 && (known.includes(text) || text.includes(known));
    const away = contained ? Math.min(2, distance(text, known)) : distance(text, known);
    if (away < least) [found, least] = [name, away];
  }
  return least <= Math.max(2, Math.floor(given.length / 3)) ? found : undefined;
}

/** "did you mean policy? It has …": what an error about an unknown name goes on with. */
export function knownNames(given: string, names: Iterable<string>): string {
  const all = [...names];
  const meant = nearest(given, all);
  return `${meant === undefined ? '' : `did you mean ${meant}? `}It has ${all.join(', ')}`;
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
