import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { ConfigError, CostError, checkConstant, describe, invalidCost, KeyInvalid } from './errors.js';
import { checkOptions } from './given-options.js';
import type { Hold } from './hold.js';
import type { PolicyLike } from './policy.js';
import { RateLimited } from './rate-limited.js';
import { asked, isTracing } from './tracing.js';

/** The options of `wrap`. */
export interface WrapOptions<A extends readonly unknown[]> {
  /** The key, or a function that makes it from the arguments. */
  key: string | ((...args: A) => string);
  /** Units each call consumes, or a function that makes them from the arguments. Default 1. */
  cost?: number | ((...args: A) => number) | undefined;
}

/** A policy as a wrapped function asks it. */
export interface WrappedPolicy {
  readonly given: PolicyLike;
  /** What is asked in its place, when it is traced. */
  readonly limiter: {
    check(policy: PolicyLike, key: string, options: { readonly cost: number }): Promise<Decision>;
    /** Throws RateLimited when there is no room. */
    hold(policy: PolicyLike, key: string, options: { readonly cost: number }): Promise<Hold>;
  };
  /** Whether it has units to hold now: a reload may change that. */
  holds(): boolean;
  check(key: string, cost: number): Promise<Decision>;
}

const GENERATORS = ['GeneratorFunction', 'AsyncGeneratorFunction'];

/** The function, limited: each call is checked first. */
export function wrapped<This, A extends readonly unknown[], R>(
  policy: WrappedPolicy,
  fn: (this: This, ...args: A) => R,
  options: WrapOptions<A>,
): (this: This, ...args: A) => Promise<Awaited<R>> {
  checkFunction(fn);
  checkWrapOptions(options);
  const isGenerator = GENERATORS.includes(Object.prototype.toString.call(fn).slice(8, -1));
  if (isGenerator && policy.holds()) throw generatorHolds(fn.name);
  const { key, cost = 1 } = options;
  const limited = async function (this: This, ...args: A): Promise<Awaited<R>> {
    const keyOfCall = typeof key === 'function' ? madeKey(fn.name, key(...args)) : key;
    const costOfCall = typeof cost === 'function' ? madeCost(fn.name, cost(...args)) : cost;
    if (!policy.holds()) {
      const decision = await (isTracing
        ? asked(policy.limiter).check(policy.given, keyOfCall, { cost: costOfCall })
        : policy.check(keyOfCall, costOfCall));
      if (!decision.allowed) throw new RateLimited(decision);
      if (decision.delayMs > 0) await delay(decision.delayMs);
      return await fn.apply(this, args as never);
    }
    if (isGenerator) throw generatorHolds(fn.name);
    const limiter = isTracing ? asked(policy.limiter) : policy.limiter;
    const hold = await limiter.hold(policy.given, keyOfCall, { cost: costOfCall });
    try {
      if (hold.decision.delayMs > 0) await delay(hold.decision.delayMs);
      return await fn.apply(this, args as never);
    } finally {
      await hold.release();
    }
  };
  return Object.defineProperties(limited, {
    name: { value: fn.name, configurable: true },
    length: { value: fn.length, configurable: true },
  });
}

function checkFunction(fn: unknown): void {
  const isClass = typeof fn === 'function' && /^class\b/.test(Function.prototype.toString.call(fn));
  if (typeof fn !== 'function' || isClass) {
    throw new ConfigError(`wrap cannot limit ${isClass ? 'a class' : describe(fn)}: give a function`);
  }
}

function checkWrapOptions<A extends readonly unknown[]>(options: WrapOptions<A>): void {
  checkOptions(options, ['key', 'cost'], 'wrap', 'key: (user) => user.id');
  const { key, cost } = options;
  if (key === undefined) {
    throw new ConfigError('wrap needs a key: give a function of the arguments, or one text for all calls');
  }
  if (typeof key === 'string') checkConstant(key, 'a key');
  else if (typeof key !== 'function') {
    throw new KeyInvalid(`key cannot be ${describe(key)}: it must be a function of the arguments, or a string`);
  }
  if (cost !== undefined && typeof cost !== 'function' && !(Number.isSafeInteger(cost) && cost >= 1)) {
    throw invalidCost(cost);
  }
}

/** A generator function returns before its body has run, and its caller may never run it. */
function generatorHolds(name: string): ConfigError {
  return new ConfigError(
    `wrap cannot hold a concurrency limit for the generator function ${name}, which runs after the call: use hold around the loop`,
  );
}

function madeKey(name: string, key: unknown): string {
  if (typeof key === 'string') return key;
  throw new KeyInvalid(`the key function of ${name} returned ${describe(key)}: it must return a string`);
}

function madeCost(name: string, cost: unknown): number {
  if (typeof cost === 'number') return cost;
  throw new CostError(
    `the cost function of ${name} returned ${describe(cost)}: it must return a whole number from 1 to 2^53 - 1`,
  );
}
