// Runs functions at the end of a tick. Tests replace timers and `process.nextTick` by fakes, which run nothing until
// the test advances them. Calls that wait for a fake would never leave.

import process from 'node:process';

type Later = <T>(callback: (value: T) => void, value: T) => void;

const { nextTick } = process;

function afterMicrotasks<T>(callback: (value: T) => void, value: T): void {
  Promise.resolve(value).then(callback);
}

/** Calls a function at the end of this tick. It becomes the real `nextTick` once that has run something, which a fake does not. */
export let atEndOfTick: Later = afterMicrotasks;

// The fakes of Jest and Vitest have a clock.
if (!('clock' in nextTick)) {
  nextTick(() => {
    atEndOfTick = nextTick;
  });
}
