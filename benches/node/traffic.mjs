// Calls as services have them: ../python/traffic.py says what the arguments mean.

const LENGTH = 4_000;
/**
 * No benchmark uses it up. With this count and those after it, the interval of a bucket has a fraction of a microsecond, so a
 * policy that is asked alone costs as much as each of many.
 */
const HIGH = 1_000_001;

/** The same numbers in each round: mulberry32. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The algorithm and the limit for each minute of so many policies. */
export function limitsOf(algorithms, policies) {
  const kinds = algorithms.split(',');
  return Array.from({ length: policies }, (_, number) => [kinds[number % kinds.length], HIGH + number]);
}

/** A function that draws the number of a key for a caller. */
function drawn(caller, callers, spread, keys, chance) {
  if (spread === 'own') return () => Math.floor(chance() * Math.floor(keys / callers)) * callers + caller;
  if (spread === 'random') return () => Math.floor(chance() * keys);
  let sum = 0;
  const sums = Float64Array.from({ length: keys }, (_, number) => (sum += 1 / (number + 1)));
  return () => {
    const sought = chance() * sum;
    let [low, high] = [0, keys - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sums[middle] < sought) low = middle + 1;
      else high = middle;
    }
    return low;
  };
}

/** The policy and the key of each call of a caller, over which it goes again and again. */
export function callsOf(caller, callers, spread, keys, policies) {
  const chance = random(caller);
  const draw = drawn(caller, callers, spread, keys, chance);
  return Array.from({ length: LENGTH }, () => [
    Math.floor(chance() * policies),
    `user:${String(draw()).padStart(7, '0')}`,
  ]);
}
