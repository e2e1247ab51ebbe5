// The options of stores for other packages.

import { ConfigError, describe } from './errors.js';
import { checkOptions } from './http/option-names.js';
import { Limiter } from './limiter.js';

/** The options of a store. */
export interface PeerStoreOptions {
  /** The limiter that counts. */
  limiter: Limiter;
  /** The prefix of its keys. Each of several stores on one Redis needs its own. */
  prefix?: string | undefined;
}

/** The options, checked, with their defaults. */
export function storeOptions(
  options: PeerStoreOptions,
  where: string,
  prefix: string,
): { limiter: Limiter; prefix: string } {
  checkOptions(options, ['limiter', 'prefix'], where);
  if (!(options.limiter instanceof Limiter)) {
    throw new ConfigError(`${where}: the option limiter is no Limiter of tidegate`);
  }
  if (options.prefix !== undefined && typeof options.prefix !== 'string') {
    throw new ConfigError(`${where}: the option prefix is ${describe(options.prefix)}: it must be a text`);
  }
  return { limiter: options.limiter, prefix: options.prefix ?? prefix };
}
