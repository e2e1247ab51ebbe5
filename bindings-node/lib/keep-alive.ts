// Keeps the process alive while a call waits for its answer, and only then.

import { setInterval } from 'node:timers';

const LONGEST_INTERVAL = 2 ** 31 - 1;

const timer = setInterval(() => {}, LONGEST_INTERVAL);
timer.unref();

/** The owners of calls that wait. Being in this set keeps them from being garbage-collected. */
const waiting = new Set<object>();

/** Keeps the process and the owner alive until `release`. */
export function retain(owner: object): void {
  waiting.add(owner);
  if (waiting.size === 1) timer.ref();
}

/** The owner no longer waits for an answer. */
export function release(owner: object): void {
  waiting.delete(owner);
  if (waiting.size === 0) timer.unref();
}
