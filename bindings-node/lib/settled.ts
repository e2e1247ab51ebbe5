// A Decision is settled once, by the limiter that made it or by one of the same store and prefix.

import { types } from 'node:util';

import type { NamedCheckEntry } from './call-options.js';
import { type Cost, isUnits } from './cost.js';
import { Decision, partsOf, policyRefOf } from './decision.js';
import { ConfigError, CostError, describe, didNotRun, StoreError, shortened } from './errors.js';
import { isRecord } from './given-options.js';
import type { binding } from './native.js';

/**
 * The consumed units: a number, or numbers by the names of units. A unit that is not named stays as it is. If a Decision has several
 * entries, one number is for those that named a cost, or for all if none did. With numbers by units, each entry takes the units
 * that its policy counts. A list has a cost for each entry, and `undefined` or `null` leaves an entry as it is. A map or an object
 * has a cost for each policy that it names. No settle changes held units, because their hold gives them back.
 */
export type ActualCost =
  | Cost
  | readonly (Cost | null | undefined)[]
  | ReadonlyMap<string, Cost>
  | Readonly<Record<string, Cost>>;

/** The settled entries. They stand in a separate set, so that a Decision that no one settles costs nothing. */
const settled = new WeakSet<Decision>();

/** The entries with a cost that the caller named, in Decisions with several entries. */
const costNamed = new WeakSet<Decision>();

/** Remembers that the caller named the cost of an entry. */
export function nameCost(entry: Decision): void {
  costNamed.add(entry);
}

/** Remembers which entries of a Decision of `checkAll` named a cost. */
export async function withNamedCosts(
  checked: Decision | Promise<Decision>,
  given: readonly NamedCheckEntry[],
): Promise<Decision> {
  const decision = await checked;
  for (const [index, entry] of decision.decisions.entries()) if (given[index]?.cost !== undefined) nameCost(entry);
  return decision;
}

/** Returns the entries of a Decision to settle. Throws for a Decision of another limiter, and for one that was settled. */
export function settleable(decision: Decision, limiter: string): readonly Decision[] {
  if (!(decision instanceof Decision)) {
    throw new ConfigError(`settle must get a Decision of this limiter, not ${describe(decision)}`);
  }
  const entries = partsOf(decision);
  for (const entry of entries) {
    if (policyRefOf(entry).limiter !== limiter) {
      throw new ConfigError(
        'settle was given a Decision of another limiter: settle it with the limiter that made it, or with one of the same ' +
          'store and prefix',
      );
    }
    if (settled.has(entry)) {
      const name = JSON.stringify(shortened(entry.policy));
      throw new ConfigError(`this Decision about ${name} was settled before: settle a Decision once`);
    }
  }
  return entries;
}

/** True if the caller named the cost of an entry. */
export function namesCost(entry: Decision): boolean {
  return costNamed.has(entry);
}

type GivenCosts = Parameters<binding.NativeLimiter['costsOfEntries']> extends [unknown, ...infer Rest] ? Rest : never;

/** Returns actual costs in the form for the core: costs, their names, and true for one cost for all entries. */
export function givenCosts(entries: readonly Decision[], actual: ActualCost): GivenCosts {
  if (Array.isArray(actual))
    return [actual.map((cost, index) => optional(cost, entries[index]?.policy)), undefined, false];
  if (!types.isMap(actual) && !isRecord(actual)) return [[checkedActual(actual, entries[0]?.policy)], undefined, true];
  const byName = types.isMap(actual) ? [...actual] : Object.entries(actual);
  return [byName.map(([name, cost]) => optional(cost, name)), byName.map(([name]) => String(name)), false];
}

function optional(cost: unknown, name: unknown): Cost | undefined {
  return cost === undefined || cost === null ? undefined : checkedActual(cost, name);
}

function checkedActual(cost: unknown, name: unknown): Cost {
  const numbers = isUnits(cost) ? Object.values(cost) : [cost];
  const wrong = numbers.findIndex((number) => !Number.isSafeInteger(number) || (number as number) < 0);
  if (wrong < 0) return cost as Cost;
  const unit = isUnits(cost) ? ` ${shortened(Object.keys(cost)[wrong] as string)}` : '';
  throw new CostError(
    `the actual cost of ${describe(name)} must be a whole number from 0 to 2^53 - 1, not ${describe(numbers[wrong])}${unit}`,
  );
}

/**
 * Settles entries, which count as settled from now on. An entry that certainly was not settled may be settled again. After any other
 * failure the outcome is not known, and the estimate stays charged.
 */
export async function settleEach(
  entries: readonly Decision[],
  costs: readonly (Cost | null | undefined)[],
  settle: (entry: Decision, cost: Cost) => Promise<unknown>,
): Promise<void> {
  for (const entry of entries) settled.add(entry);
  const attempt = async (entry: Decision, index: number): Promise<void> => {
    const cost = costs[index];
    if (cost === undefined || cost === null) return;
    try {
      await settle(entry, cost);
    } catch (error) {
      if (!(error instanceof StoreError) || didNotRun(error)) settled.delete(entry);
      throw error;
    }
  };
  await Promise.all(entries.map(attempt));
}
