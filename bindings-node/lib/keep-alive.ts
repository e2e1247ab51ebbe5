// A process stays alive while somebody waits for an answer, and only then.

import { setInterval } from 'node:timers';

const FOREVER = 2 ** 31 - 1;

const timer = setInterval(() => {}, FOREVER);
timer.unref();

/** Those of whom somebody waits for an answer. They are kept from being collected, whoever else may have let go of them. */
const busy = new Set<object>();

/** Somebody waits for what this one will say. */
export function enter(one: object): void {
  busy.add(one);
  if (busy.size === 1) timer.ref();
}

/** Nobody waits for it any longer. */
export function leave(one: object): void {
  busy.delete(one);
  if (busy.size === 0) timer.unref();
}
