import { ConfigError, checkText, describe } from './errors.js';

/** Throws if the value is no percentage. */
export function checkPercent(percent: number): void {
  if (typeof percent !== 'number' || !(percent >= 0 && percent <= 100)) {
    throw new ConfigError(`a rollout of ${describe(percent)} percent cannot be: give a number from 0 to 100`);
  }
}

export let urlsOf: (rollout: Rollout) => readonly [oldUrl: string, newUrl: string];

/** A move from one store to another. You make it with `rollout`. */
export class Rollout {
  // Private, so that printing it shows no URL: URLs may hold passwords.
  readonly #urls: readonly [string, string];
  /** The percentage of the keys that use the new store at first. */
  readonly percent: number;

  /** @internal */
  constructor(oldUrl: string, newUrl: string, percent: number) {
    for (const url of [oldUrl, newUrl] as unknown[]) {
      if (typeof url !== 'string') {
        throw new ConfigError(`rollout must get the URL of a store, as in rollout(old, new, 5), not ${describe(url)}`);
      }
      checkText(url, 'a store URL');
    }
    checkPercent(percent);
    this.#urls = [oldUrl, newUrl];
    this.percent = percent;
  }

  static {
    urlsOf = (rollout) => rollout.#urls;
  }
}

/**
 * Makes a move from an old store to a new one. `percent` of the keys use the new one, always the same keys. Give it to a limiter
 * as its store. `limiter.setRollout(percent)` changes the percentage at once. Usage in the other store is not copied.
 *
 * ```ts
 * const limiter = new Limiter({ store: rollout('redis://old', 'redis://new', 5) });
 * ```
 */
export function rollout(oldUrl: string, newUrl: string, percent: number): Rollout {
  return new Rollout(oldUrl, newUrl, percent);
}
