// A limiter while all clocks and timers are the fakes of Jest and of Vitest, which stand still.

import { writeSync } from 'node:fs';
import process from 'node:process';
import { promisify } from 'node:util';
import FakeTimers from '@sinonjs/fake-timers';
import { Limiter, ManualClock } from 'tidegate';

const [, , store] = process.argv;
const wait = promisify(setTimeout);
const limiter = new Limiter({ store, prefix: `fakes${process.pid}`, timeoutMs: 20_000 });
const clock = new ManualClock(1_700_000_000_000);
const manual = new Limiter({ clock });
// Something has run since the library was loaded.
await wait(1);
const fakes = FakeTimers.install({ now: clock.now() });
const answers = async (of) => {
  const decisions = [await of.check('fixed-window 1/s', 'a'), await of.check('fixed-window 1/s', 'a')];
  return decisions.map(({ allowed }) => (allowed ? 'admitted' : 'denied')).join(' ');
};
const told = [await answers(limiter)];
// The time of a store goes on.
await wait(1_100);
told.push(await answers(limiter));
// The time of a ManualClock moves together with the fakes.
told.push(await answers(manual));
fakes.tick(1_000);
clock.advance(1_000);
told.push(await answers(manual), String(Date.now() === clock.now()));
writeSync(1, told.join(', '));
process.exit(0);
