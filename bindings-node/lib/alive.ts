// A process stays alive while somebody waits for an answer, and only then.

import { setInterval } from 'node:timers';

const FOREVER = 2 ** 31 - 1;

const timer = setInterval(() => {}, FOREVER);
timer.unref();

let waiting = 0;

/** Somebody waits. */
export function up(): void {
  if (waiting++ === 0) timer.ref();
}

/** Somebody waits no longer. */
export function down(): void {
  if (--waiting === 0) timer.unref();
}
