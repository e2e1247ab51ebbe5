// Checks the options that a user gives. One that does not exist is a mistake, and must not be without effect.

import { ConfigError, checkText, describe, shortened, type TidegateError } from './errors.js';
import { native } from './native.js';

type ErrorClass = new (message: string) => TidegateError;

const DECLARED = native.declaredOptions();
const NAMES = Object.fromEntries(
  Object.entries(DECLARED).map(([owner, options]) => [owner, options.map(({ name }) => name)]),
);

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

/** The options of a policy, a limiter, a call or a web layer, as the core declares them. */
export function declaredOptions(owner: string): readonly native.DeclaredOption[] {
  return DECLARED[owner] as native.DeclaredOption[];
}

/** Their names, in the order in which messages list them. */
export function declaredNames(owner: string): readonly string[] {
  return NAMES[owner] as string[];
}

/** Throws for a value of another type, and for a text that is none in UTF-8. */
export function checkType(
  name: string,
  value: unknown,
  types: readonly string[],
  Kind: ErrorClass = ConfigError,
): void {
  if (Array.isArray(value) && types.includes('list')) {
    const items = types.filter((type) => type !== 'list');
    for (const [index, item] of value.entries()) checkType(`${name}[${index}]`, item, items, Kind);
    return;
  }
  if (!types.includes(typeof value)) {
    throw new Kind(`${name} cannot be ${describe(value)}: it must be a ${types.join(' or a ')}`);
  }
  if (typeof value === 'string') checkText(value, name, Kind);
}

/** "did you mean policy? It has …": what an error about an unknown name goes on with. */
export function knownNames(given: string, names: Iterable<string>): string {
  const all = [...names];
  const near = native.didYouMean(given, all).slice(2);
  return `${near}${near && ' '}It has ${all.join(', ')}`;
}

/** Whether an option was given: what a program has added to every object was not. */
function isGiven(options: object, name: string): boolean {
  if (!(name in Object.prototype)) return name in options;
  let owner: object | null = options;
  while (owner !== null && owner !== Object.prototype && !Object.hasOwn(owner, name)) {
    owner = Object.getPrototypeOf(owner) as object | null;
  }
  return owner !== null && owner !== Object.prototype;
}

/** The options of these names, each as a property of the object itself: undefined where it was not given. */
export function ownOptions<Options extends object>(options: Options, names: readonly string[]): Options {
  const own = names.map((name) => [name, isGiven(options, name) ? options[name as keyof Options] : undefined]);
  return Object.fromEntries(own) as Options;
}

/**
 * The options, checked. Throws for what is no object, and for an option that its owner does not have. Without an `example` the owner is
 * a place, whose options are not null either.
 */
export function checkOptions<Options>(
  options: Options,
  names: readonly string[],
  owner: string,
  example?: string,
  Kind: ErrorClass = ConfigError,
): Options {
  if (!isRecord(options)) {
    throw new Kind(
      example === undefined
        ? `${owner}: give options, an object with ${names.join(', ')}; this is ${describe(options)}`
        : `${owner} cannot take ${describe(options)}: it takes an object of options, as in { ${example} }`,
    );
  }
  // Inherited ones too: they are read like the object's own.
  for (const name in options) {
    if (!isGiven(options, name)) continue;
    if (!names.includes(name)) {
      const known = knownNames(name, names);
      const separator = example !== undefined && known.startsWith('did') ? ';' : ':';
      throw new Kind(`${owner} has no option ${shortened(name)}${separator} ${known}`);
    }
    if (options[name] === null && example === undefined) {
      throw new ConfigError(`${owner}: the option ${name} cannot be null: leave it out for its default`);
    }
  }
  return names.some((name) => name in Object.prototype) ? ownOptions(options, names) : options;
}
