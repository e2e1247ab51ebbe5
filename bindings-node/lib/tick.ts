// The end of a tick. Tests put fakes in the place of timers, and of `process.nextTick`, which run nothing until they are told to:
// calls that wait for them would never leave.

import process from 'node:process';

type Later = <T>(callback: (value: T) => void, value: T) => void;

const { nextTick } = process;

function afterMicrotasks<T>(callback: (value: T) => void, value: T): void {
  Promise.resolve(value).then(callback);
}

/** Calls a function when what runs now has ended. `nextTick` as it was when this was loaded, once it has run something: a fake does not. */
export let atEndOfTick: Later = afterMicrotasks;

// The fakes of Jest and Vitest have a clock.
if (!('clock' in nextTick)) {
  nextTick(() => {
    atEndOfTick = nextTick;
  });
}
