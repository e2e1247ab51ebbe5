// The options of a limiter's calls.

import { type CancelSignal, checkSignal } from './cancel-signal.js';
import type { Cost } from './cost.js';
import { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType, declaredNames, declaredOptions, knownNames } from './given-options.js';
import type { Hold } from './hold.js';
import type { PolicyLike, PolicyRef } from './policy.js';

/** The options of `check`. */
export interface CheckOptions {
  // options: check
  /**
   * The units of the call: a number, or numbers by the names of units, for limits with units such as tokens. Default:
   * 1.
   */
  cost?: Cost | undefined;
  /** Metadata that the journal keeps with the attempt. */
  meta?: string | Uint8Array | undefined;
  /**
   * Take the units that are left, up to the cost. `granted` is their number. Without any, the check is denied. Default:
   * false.
   */
  partial?: boolean | undefined;
  /** The class of the call, one of the policy's `priorities`. The call leaves the part of its class free. */
  priority?: string | undefined;
  // options end
}

/** The options of calls that only have a cost. */
export interface CostOptions {
  // options: refund
  /**
   * The units of the call: a number, or numbers by the names of units, for limits with units such as tokens. Default:
   * 1.
   */
  cost?: Cost | undefined;
  // options end
}

/** The options of `peek`. */
export interface PeekOptions {
  // options: peek
  /**
   * The units of the call: a number, or numbers by the names of units, for limits with units such as tokens. Default:
   * 1.
   */
  cost?: Cost | undefined;
  /** The class of the call, one of the policy's `priorities`. The call leaves the part of its class free. */
  priority?: string | undefined;
  // options end
}

/** The options of `acquire`. */
export interface AcquireOptions {
  // options: acquire
  /**
   * The units of the call: a number, or numbers by the names of units, for limits with units such as tokens. Default:
   * 1.
   */
  cost?: Cost | undefined;
  /** The longest time to wait. Default: as long as it takes. */
  timeoutMs?: number | undefined;
  /** Metadata that the journal keeps with the attempt. */
  meta?: string | Uint8Array | undefined;
  /** The class of the call, one of the policy's `priorities`. The call leaves the part of its class free. */
  priority?: string | undefined;
  /** An `AbortSignal` that cancels the waiting: the call then rejects with the signal's reason. */
  signal?: CancelSignal | undefined;
  // options end
}

/** The options of `observe`. */
export interface ObserveOptions {
  // options: observe
  /**
   * The Decision of the answered call. Tidegate then adds the units that were charged since to the usage in the
   * response.
   */
  decision?: Decision | undefined;
  // options end
}

/** The options of `hold`. */
export interface HoldOptions {
  // options: hold
  /**
   * The units of the call: a number, or numbers by the names of units, for limits with units such as tokens. Default:
   * 1.
   */
  cost?: Cost | undefined;
  /** The longest time to wait for room. Without an end, the call waits until there is room. Default: 0. */
  timeoutMs?: number | undefined;
  /** The class of the call, one of the policy's `priorities`. The call leaves the part of its class free. */
  priority?: string | undefined;
  /** Metadata that the journal keeps with the attempt. */
  meta?: string | Uint8Array | undefined;
  /** An `AbortSignal` that cancels the waiting: the call then rejects with the signal's reason. */
  signal?: CancelSignal | undefined;
  // options end
}

/** The options of `override`. */
export interface OverrideOptions {
  // options: override
  /** The time until the override ends. Default: until they are removed. */
  ttlMs?: number | undefined;
  // options end
}

/** An entry of `checkAll`: policy, key and cost, which is 1 by default. */
export type CheckEntry<Name extends string = string> =
  | readonly [policy: PolicyLike<Name>, key: string, cost?: Cost | undefined]
  | NamedCheckEntry<Name>;

/** An entry of `checkAll` as an object, which may also have metadata and a class. */
export interface NamedCheckEntry<Name extends string = string> {
  readonly policy: PolicyLike<Name>;
  readonly key: string;
  /** Units it consumes: a number, or numbers by the names of units. Default 1. */
  readonly cost?: Cost | undefined;
  /** Metadata that the journal remembers. */
  readonly meta?: string | Uint8Array | undefined;
  /** The class of the entry, one of its policy's `priorities`. */
  readonly priority?: string | undefined;
}

const COST_EXAMPLE = 'cost: 5';
const EXAMPLES: Readonly<Record<string, string>> = {
  acquire: 'timeoutMs: 5000',
  hold: 'timeoutMs: 5000',
  observe: 'decision',
};

/** Returns the cost if the options have nothing else. Otherwise undefined, also for a value that may be no options at all. */
export function onlyCost(options: CheckOptions): Cost | undefined {
  let cost: Cost | undefined;
  // The names of an object literal are ready, so this loop costs next to nothing.
  for (const name in options) {
    if (name !== 'cost') return undefined;
    cost = options.cost;
  }
  return cost;
}

/** Checks the options of a call and returns them. */
export function checkedOptions<Options extends object>(call: string, given: Options): Options {
  const options = checkOptions(given, declaredNames(call), call, EXAMPLES[call] ?? COST_EXAMPLE);
  for (const { name, kind } of declaredOptions(call)) {
    const value: unknown = options[name as keyof Options];
    if (value === undefined) continue;
    if (kind === 'Flag' && typeof value !== 'boolean') {
      throw new ConfigError(`${name} must be true or false, not ${describe(value)}`);
    }
    if (kind === 'Wait' && typeof value !== 'number') {
      throw new ConfigError(`${name} must be a number of milliseconds, not ${describe(value)}`);
    }
    if (kind === 'Priority') checkPriority(value);
    if (kind === 'Signal') checkSignal(value as CancelSignal);
    if (kind === 'Decision' && !(value instanceof Decision)) {
      throw new ConfigError(`${name} must be a Decision, not ${describe(value)}`);
    }
  }
  return options;
}

/** Throws if the value cannot be the name of a class. */
export function checkPriority(value: unknown): void {
  checkType('priority', value, ['string']);
}

/** Throws if a call of these policies cannot have this class. */
export function checkClass(priority: string, policyRefs: readonly PolicyRef[], where: string): void {
  const classed = policyRefs.filter(({ classes }) => classes !== undefined);
  if (classed.length === 0) {
    throw new ConfigError(
      `${where}: priority is ${describe(priority)}, and no policy has classes: declare them with its option priorities, as in ` +
        "{ priorities: { batch: '30%' } }",
    );
  }
  for (const { name, classes = [] } of classed) {
    if (classes.includes(priority)) continue;
    const known = knownNames(priority, classes);
    throw new ConfigError(
      `${where}: priority is ${describe(priority)}, which is not a class of ${JSON.stringify(name)}: ${known}`,
    );
  }
}

/** The function that `hold` runs while it has its units. */
export type HeldWork<T> = (hold: Hold) => Promise<T> | T;

/** Checks the arguments of `hold`: its options and its function, in either order. Both may be missing. */
export function holdArguments<T>(
  first: HoldOptions | HeldWork<T> | undefined,
  second: HeldWork<T> | HoldOptions | undefined,
): HoldOptions & { readonly run: HeldWork<T> | undefined } {
  const [work, options] = typeof first === 'function' ? [first, second] : [second, first];
  if (work !== undefined && typeof work !== 'function') {
    throw new ConfigError(`hold must get a function, or nothing to return the Hold itself, not ${describe(work)}`);
  }
  if (options === undefined) return { run: work };
  return { ...checkedOptions('hold', options as HoldOptions), run: work };
}

/** Checks the entries of `checkAll`. `options` are the arguments after them. */
export function checkEntriesOf(entries: Iterable<CheckEntry>, options: readonly unknown[]): readonly NamedCheckEntry[] {
  if (options.some((option) => option !== undefined)) {
    const all = 'checkAll takes entries and no options: it is all or nothing, so that it cannot be partial';
    throw new ConfigError(`${all}; make a partial check of each policy and key`);
  }
  const shape = '[policy, key], [policy, key, cost] or {policy, key, cost, meta, priority}';
  const given: unknown = entries;
  if (typeof given !== 'object' || given === null || !(Symbol.iterator in given)) {
    throw new ConfigError(`checkAll must get a list of entries ${shape}, not ${describe(given)}`);
  }
  return Array.from(entries, (entry, index) => {
    const is = `entry ${index + 1} of checkAll`;
    if (Array.isArray(entry)) {
      if (entry.length > 3) throw new ConfigError(`${is} has ${entry.length} values: give ${shape}`);
      const [policy, key, cost] = entry as readonly [PolicyLike, string, Cost?];
      return { policy, key, cost };
    }
    if (typeof entry !== 'object' || entry === null || !('policy' in entry)) {
      throw new ConfigError(`${is} must be ${shape}, not ${describe(entry)}`);
    }
    const names = ['policy', 'key', 'cost', 'meta', 'priority'];
    const named = checkOptions(entry as NamedCheckEntry, names, is, COST_EXAMPLE);
    if (named.priority !== undefined) checkPriority(named.priority);
    return named;
  });
}
