import timers from 'node:timers/promises';

import { type CancelSignal, onAbort } from './cancel-signal.js';

/** The real timer, read when this file was loaded. Tests put fakes in its place, which wait only for their own clock. */
const { setTimeout } = timers;

/** The longest time that a timer of Node can wait. */
const LONGEST = 2 ** 31 - 1;

/** Waits at least that many milliseconds. If the signal is aborted, it throws the reason of the signal. */
export async function delay(ms: number, signal?: CancelSignal): Promise<void> {
  if (signal?.aborted) throw signal.reason;
  // This wait has its own signal, because many waits may share the given one.
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
