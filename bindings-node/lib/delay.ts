import timers from 'node:timers/promises';

/** As it was when this was loaded: tests put fakes in its place, which wait for nothing but their own clock. */
const { setTimeout } = timers;

/** The longest time that a timer of Node can wait. */
const LONGEST = 2 ** 31 - 1;

/** Waits that many milliseconds, and not a part of one less. */
export async function delay(ms: number): Promise<void> {
  let left = Math.ceil(ms);
  for (; left > LONGEST; left -= LONGEST) await setTimeout(LONGEST);
  if (left > 0) await setTimeout(left);
}
