import type { CheckOptions, WrapOptions } from './call-options.js';
import type { Decision } from './decision.js';
import { RateLimited } from './rate-limited.js';

/** The function, limited: each call is checked first. */
export function wrapped<This, A extends readonly unknown[], R>(
  check: (key: string, options: CheckOptions) => Promise<Decision>,
  fn: (this: This, ...args: A) => R,
  { key, cost = 1 }: WrapOptions<A>,
): (this: This, ...args: A) => Promise<Awaited<R>> {
  const limited = async function (this: This, ...args: A): Promise<Awaited<R>> {
    const decision = await check(typeof key === 'function' ? key(...args) : key, {
      cost: typeof cost === 'function' ? cost(...args) : cost,
    });
    if (!decision.allowed) throw new RateLimited(decision);
    return await fn.apply(this, args as never);
  };
  return Object.defineProperty(limited, 'name', { value: fn.name });
}
