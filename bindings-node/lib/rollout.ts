import { ConfigError, shown } from './errors.js';

export let sidesOf: (rollout: Rollout) => readonly [oldUrl: string, newUrl: string];

/** A move from one store to another: what `rollout` makes. */
export class Rollout {
  // Private, also to whoever prints it: URLs may hold passwords.
  readonly #sides: readonly [string, string];
  /** The share of the keys that begins with the new store. */
  readonly percent: number;

  /** @internal */
  constructor(oldUrl: string, newUrl: string, percent: number) {
    for (const url of [oldUrl, newUrl] as unknown[]) {
      if (typeof url !== 'string') throw new ConfigError('a store is named by its URL, a string');
    }
    if (typeof percent !== 'number') {
      throw new ConfigError(`a rollout of ${shown(percent)} percent cannot be: give a number from 0 to 100`);
    }
    this.#sides = [oldUrl, newUrl];
    this.percent = percent;
  }

  static {
    sidesOf = (rollout) => rollout.#sides;
  }
}

/**
 * From an old store to a new one: `percent` of the keys use the new one, always the same ones. Give it to a limiter as its
 * store; `limiter.setRollout(percent)` changes the share at once. What was used in the other store is not carried along.
 *
 * ```ts
 * const limiter = new Limiter({ store: rollout('redis://old', 'redis://new', 5) });
 * ```
 */
export function rollout(oldUrl: string, newUrl: string, percent: number): Rollout {
  return new Rollout(oldUrl, newUrl, percent);
}
