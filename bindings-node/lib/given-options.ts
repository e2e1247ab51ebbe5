// Checks the options that a user gives. An unknown option is a mistake, and must not be ignored.

import { ConfigError, checkText, describe, shortened, type TidegateError } from './errors.js';
import { type binding, native } from './native.js';

type ErrorClass = new (message: string) => TidegateError;

const DECLARED = native.declaredOptions();
const NAMES = Object.fromEntries(
  Object.entries(DECLARED).map(([owner, options]) => [owner, options.map(({ name }) => name)]),
);

/**
 * True if the value is an object with options by name. A list is none, and neither is a Map, a Date or a Promise that
 * was not awaited.
 */
export function isRecord(value: unknown): value is Record<string, unknown> {
  try {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
    for (const _ in value) return true;
    // An empty object counts, also one of another realm.
    const prototype: unknown = Object.getPrototypeOf(value);
    return prototype === null || Object.getPrototypeOf(prototype) === null;
  } catch {
    // A Proxy that answers nothing.
    return false;
  }
}

/** Returns the options of a policy, a limiter, a call or a web layer, as the core declares them. */
export function declaredOptions(owner: string): readonly binding.DeclaredOption[] {
  return DECLARED[owner] as binding.DeclaredOption[];
}

/** Returns their names, in the order in which messages list them. */
export function declaredNames(owner: string): readonly string[] {
  return NAMES[owner] as string[];
}

/** Throws for a value of another type, and for a text that UTF-8 cannot encode. */
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
    throw new Kind(`${name} must be a ${types.join(' or a ')}, not ${describe(value)}`);
  }
  if (typeof value === 'string') checkText(value, name, Kind);
}

/** Returns the end of an error about an unknown name, as in "did you mean policy? It has …". */
export function knownNames(given: string, names: Iterable<string>): string {
  const all = [...names];
  const near = native.didYouMean(given, all).slice(2);
  return `${near}${near && ' '}It has ${all.join(', ')}`;
}

/** True if an option was given. A property that a program has added to every object was not. */
function isGiven(options: object, name: string): boolean {
  if (!(name in Object.prototype)) return name in options;
  let owner: object | null = options;
  while (owner !== null && owner !== Object.prototype && !Object.hasOwn(owner, name)) {
    owner = Object.getPrototypeOf(owner) as object | null;
  }
  return owner !== null && owner !== Object.prototype;
}

/** Returns the options of these names as properties of a new object. A property is undefined if the option was not given. */
export function ownOptions<Options extends object>(options: Options, names: readonly string[]): Options {
  const own = names.map((name) => [name, isGiven(options, name) ? options[name as keyof Options] : undefined]);
  return Object.fromEntries(own) as Options;
}

/**
 * Checks options. Throws if they are no object, or if the owner does not have one of them. Without an `example` the
 * owner is a place such as `tidegate/bullmq`, and an option that is null throws too.
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
  // Inherited options count, because they are read like the own options of the object.
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
