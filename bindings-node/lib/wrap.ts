import { checkPriority } from './call-options.js';
import { type Cost, isUnits } from './cost.js';
import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { ConfigError, CostError, checkConstant, describe, invalidCost, KeyInvalid } from './errors.js';
import { checkOptions } from './given-options.js';
import type { Hold } from './hold.js';
import type { PolicyLike } from './policy.js';
import { RateLimited } from './rate-limited.js';
import { asked } from './tracing.js';

/** The options of `wrap`. */
export interface WrapOptions<A extends readonly unknown[]> {
  /** The key, or a function that makes it from the arguments. */
  key: string | ((...args: A) => string);
  /** Units each call consumes, a number or numbers by the names of units, or a function that makes them from the arguments. Default 1. */
  cost?: Cost | ((...args: A) => Cost) | undefined;
  /** The class of the calls, one of the policy's `priorities`, or a function of the arguments that may return undefined for none. */
  priority?: string | ((...args: A) => string | undefined) | undefined;
}

/** The cost and the class that the arguments of a call make. */
interface MadeOptions {
  readonly cost: Cost;
  readonly priority?: string;
}

/** The calls of a limiter, or of the same limiter with spans. */
interface Called {
  check(policy: PolicyLike, key: string, options: MadeOptions | undefined): Promise<Decision>;
  /** Throws RateLimited if there is no room. */
  hold(policy: PolicyLike, key: string, options: MadeOptions): Promise<Hold>;
}

const GENERATORS = ['GeneratorFunction', 'AsyncGeneratorFunction'];

/** Returns the function with a limit. `holds` returns true if the policy has units to hold now, which a reload may change. */
export function wrapped<This, A extends readonly unknown[], R>(
  limiter: Called,
  policy: PolicyLike,
  holds: () => boolean,
  fn: (this: This, ...args: A) => R,
  options: WrapOptions<A>,
): (this: This, ...args: A) => Promise<Awaited<R>> {
  const isClass = typeof fn === 'function' && /^class\b/.test(Function.prototype.toString.call(fn));
  if (typeof fn !== 'function' || isClass) {
    throw new ConfigError(`wrap must get a function, not ${isClass ? 'a class' : describe(fn)}`);
  }
  const checked = checkOptions(options, ['key', 'cost', 'priority'], 'wrap', 'key: (user) => user.id');
  const { key: keyOption, cost: costOption = 1, priority: priorityOption } = checked;
  if (keyOption === undefined) {
    throw new ConfigError('wrap needs a key: give a function of the arguments, or one text for all calls');
  }
  checkMade(keyOption, costOption, priorityOption);
  const isGenerator = GENERATORS.includes(Object.prototype.toString.call(fn).slice(8, -1));
  if (isGenerator && holds()) throw generatorHolds(fn.name);
  const limited = async function (this: This, ...args: A): Promise<Awaited<R>> {
    const key = typeof keyOption === 'function' ? madeKey(fn.name, keyOption(...args)) : keyOption;
    const cost = typeof costOption === 'function' ? madeCost(fn.name, costOption(...args)) : costOption;
    const priority =
      typeof priorityOption === 'function' ? madePriority(fn.name, priorityOption(...args)) : priorityOption;
    const made: MadeOptions = priority === undefined ? { cost } : { cost, priority };
    const isHeld = holds();
    if (isHeld && isGenerator) throw generatorHolds(fn.name);
    const hold = isHeld ? await asked(limiter).hold(policy, key, made) : undefined;
    try {
      const isPlain = cost === 1 && priority === undefined;
      const decision = hold?.decision ?? (await asked(limiter).check(policy, key, isPlain ? undefined : made));
      if (!decision.allowed) throw new RateLimited(decision);
      if (decision.delayMs > 0) await delay(decision.delayMs);
      return await fn.apply(this, args as never);
    } finally {
      if (hold !== undefined) await hold.release();
    }
  };
  return Object.defineProperties(limited, {
    name: { value: fn.name, configurable: true },
    length: { value: fn.length, configurable: true },
  });
}

/** Throws for a wrong key, cost or class, unless a function makes it. */
export function checkMade(key: unknown, cost: unknown, priority: unknown): void {
  if (priority !== undefined && typeof priority !== 'function') checkPriority(priority);
  if (typeof key === 'string') checkConstant(key, 'a key');
  else if (typeof key !== 'function') {
    throw new KeyInvalid(`key must be a function of the arguments, or a string, not ${describe(key)}`);
  }
  if (cost === undefined || typeof cost === 'function' || isUnits(cost)) return;
  if (!Number.isSafeInteger(cost) || (cost as number) < 1) throw invalidCost(cost);
}

/** A generator function returns before its body has run, and its caller may never run it. */
function generatorHolds(name: string): ConfigError {
  return new ConfigError(
    `wrap cannot hold a concurrency limit for the generator function ${name}, which runs after the call: use hold around the loop`,
  );
}

export function madeKey(name: string, key: unknown): string {
  if (typeof key === 'string') return key;
  throw new KeyInvalid(`the key function of ${name} returned ${describe(key)}: it must return a string`);
}

export function madeCost(name: string, cost: unknown): Cost {
  if (typeof cost === 'number' || isUnits(cost)) return cost;
  throw new CostError(
    `the cost function of ${name} returned ${describe(cost)}: it must return a whole number from 1 to 2^53 - 1, or an object of such numbers by the names of units`,
  );
}

export function madePriority(name: string, priority: unknown): string | undefined {
  if (priority === undefined || priority === null) return undefined;
  if (typeof priority === 'string') return priority;
  throw new ConfigError(
    `the priority function of ${name} returned ${describe(priority)}: it must return the name of a class, or undefined for none`,
  );
}
