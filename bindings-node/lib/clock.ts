import { ConfigError, describe } from './errors.js';
import { type binding, native } from './native.js';

/** Returns a time rounded to a whole microsecond. A double counts those exactly for more than 270 years after 1970. */
function checkedTime(ms: number, what: string): number {
  const micros = typeof ms === 'number' ? Math.round(ms * 1000) : -1;
  if (!(micros >= 0 && micros <= Number.MAX_SAFE_INTEGER / 2)) {
    throw new ConfigError(`${what} must be a number of milliseconds from 0 on, not ${describe(ms)}`);
  }
  return micros / 1000;
}

/** The native clock behind a ManualClock. */
export let nativeClockOf: (clock: ManualClock) => binding.Clock;

/**
 * A clock for tests. A limiter with such a clock uses its time instead of the store's.
 *
 * ```ts
 * const clock = new ManualClock(1_700_000_000_000);
 * const limiter = new Limiter({ clock });
 * await limiter.check('1/minute', 'alice');
 * clock.advance(60_000);
 * ```
 */
export class ManualClock {
  readonly #clock: binding.Clock;
  #now: number;

  /** Makes a clock that stands at `nowMs`, in milliseconds since 1970. The default is in November 2023. */
  constructor(nowMs = 1_700_000_000_000) {
    this.#now = checkedTime(nowMs, 'the time of a clock');
    this.#clock = native.Clock.at(this.#now);
  }

  /** Returns the time, in milliseconds since 1970. */
  now(): number {
    return this.#now;
  }

  /** Moves the clock forward. */
  advance(ms: number): void {
    this.set(this.#now + checkedTime(ms, 'the time to advance a clock by'));
  }

  /** Sets the time. It may be earlier than before. */
  set(nowMs: number): void {
    this.#now = checkedTime(nowMs, 'the time of a clock');
    this.#clock.set(this.#now);
  }

  static {
    nativeClockOf = (clock) => clock.#clock;
  }
}
