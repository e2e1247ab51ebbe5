import timers from 'node:timers/promises';

import { type CancelSignal, onAbort } from './cancel-signal.js';

/** As it was when this was loaded: tests put fakes in its place, which wait for nothing but their own clock. */
const { setTimeout } = timers;

/** The longest time that a timer of Node can wait. */
const LONGEST = 2 ** 31 - 1;

/** Waits that many milliseconds, and not a part of one less. A signal ends it with its reason. */
export async function delay(ms: number, signal?: CancelSignal): Promise<void> {
  if (signal?.aborted) throw signal.reason;
  // A signal of its own, since many waits may share the given one.
  const ended = signal && new AbortController();
  const forget = signal && onAbort(signal, () => ended?.abort());
  const options = ended && { signal: ended.signal };
  try {
    let left = Math.ceil(ms);
    for (; left > LONGEST; left -= LONGEST) await setTimeout(LONGEST, undefined, options);
    if (left > 0) await setTimeout(left, undefined, options);
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  } finally {
    forget?.();
  }
}
