// A flood of keys or notations: flood.mjs NAME STORE [DENY_CACHE_MS]. Prints the MiB of the process at most, and at the end.

import { Limiter, Policy } from 'tidegate';

const LONG = 60_000;
const longKey = (number) => String(number).padStart(LONG, '0');

function expect(holds, what) {
  if (!holds) throw new Error(what);
}

/** Denies `count` keys that `keyOf` makes. */
async function deny(limiter, count, keyOf) {
  for (let number = 0; number < count; number++) {
    const key = keyOf(number);
    const first = await limiter.check('1/hour', key);
    const second = await limiter.check('1/hour', key);
    expect(first.allowed && !second.allowed && second.key === key, `key ${number}`);
  }
  const again = await limiter.check('1/hour', keyOf(count >> 1));
  expect(!again.allowed, 'none was forgotten');
}

const floods = {
  deniedKeys: (limiter) => deny(limiter, 8_000, longKey),
  // Short keys that are parts of long texts, like keys that are cut out of a request.
  partsOfTexts: (limiter) =>
    deny(limiter, 8_000, (number) => {
      const text = `${number}`.padStart(20, 'k') + 'x'.repeat(LONG);
      return Buffer.from(text).toString('latin1').slice(0, 20);
    }),
  async chargedKeys(limiter) {
    for (let number = 0; number < 8_000; number++) await limiter.charge('1/hour', longKey(number), 1);
  },
  async heapIsGivenBack(limiter) {
    const heap = () => {
      globalThis.gc();
      return process.memoryUsage().heapUsed;
    };
    const check = (policy, count, keyOf) =>
      Promise.all(Array.from({ length: count }, (_, index) => limiter.check(policy, keyOf(index))));
    const flood = async (from) => {
      for (let round = 0; round < 60; round++) {
        const keyOf = (index) => `key ${from + round * 1000 + index}`;
        await check('1/hour', 1000, keyOf);
        const denied = await check('1/hour', 1000, keyOf);
        expect(!denied.some((decision) => decision.allowed), 'all are denied');
      }
    };
    // The first round makes the one-time allocations.
    await check('1000000/hour', 1000, () => 'another');
    const before = heap();
    await flood(0);
    const flooded = heap();
    expect(flooded - before > 3_000_000, `the flood took ${flooded - before} bytes`);
    // All its denials are over, and the calls that come now remove them.
    await new Promise((resolve) => setTimeout(resolve, 3500));
    for (let round = 0; round < 80; round++) await check('1000000/hour', 1000, () => 'another');
    expect(heap() - before < (flooded - before) / 4, `of ${flooded - before} bytes ${heap() - before} are left`);
  },
  async notations(limiter) {
    for (let number = 0; number < 3_000; number++) {
      const notation = `${' '.repeat(LONG)}1/hour;${number + 1}/day`;
      const first = await limiter.check(notation, `a${number}`);
      const second = await limiter.check(notation, `a${number}`);
      expect(first.allowed && !second.allowed, notation.trim());
      expect(first.policy === second.policy && second.policy.length < 100, second.policy);
    }
  },
  async policies(limiter) {
    const periods = Array.from({ length: 15 }, (_, index) => index + 1);
    for (let number = 0; number < 20_000; number++) {
      const policy = new Policy(periods.map((hours) => `${number + 1}/${hours} h`));
      expect((await limiter.check(policy, 'k')).allowed, `policy ${number}`);
    }
  },
  async togetherWithMorePoliciesThanFit(limiter) {
    const size = 130;
    for (let round = 0; round < 150; round++) {
      const entries = Array.from({ length: size }, (_, index) => {
        const number = round * size + index + 1;
        return [`1/hour;${number}/day;${number}/2 days`, 'k'];
      });
      const decision = await limiter.checkAll(entries);
      const wrong = decision.decisions.find((one, index) => one.limits[1]?.limit !== round * size + index + 1);
      expect(decision.allowed && wrong === undefined, `round ${round}: ${wrong?.policy}`);
    }
  },
};

const [, , name, store, denyCacheMs = '60000'] = process.argv;
const limiter = new Limiter({
  store,
  prefix: `flood${process.pid}`,
  timeoutMs: 20_000,
  denyCacheMs: Number(denyCacheMs),
});
await floods[name](limiter);
globalThis.gc();
const { rss } = process.memoryUsage();
console.log(JSON.stringify([process.resourceUsage().maxRSS / 1024, rss / 2 ** 20].map(Math.round)));
await limiter.close();
