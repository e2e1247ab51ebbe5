// A Decision is settled once, by the limiter that made it or by one of the same store and prefix.

import { types } from 'node:util';

import type { NamedCheckEntry } from './call-options.js';
import { type Cost, isCostName, isUnits, shareOf, type Units, uncounted } from './cost.js';
import { Decision, partsOf, policyRefOf } from './decision.js';
import { ConfigError, CostError, describe, didNotRun, StoreError, shortened } from './errors.js';
import { isRecord } from './given-options.js';

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

/** Returns the actual costs by entry. All entries of the Decision count as settled from now on. */
export function claimed(decision: Decision, actual: ActualCost, limiter: string): ReadonlyMap<Decision, Cost> {
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
      throw new ConfigError(`this Decision about ${nameOf(entry)} was settled before: settle a Decision once`);
    }
  }
  const costs = costsOf(entries, actual);
  for (const entry of entries) settled.add(entry);
  return costs;
}

function nameOf({ policy }: Decision): string {
  return JSON.stringify(shortened(policy));
}

/** Returns the checked cost of each entry to settle. */
function costsOf(entries: readonly Decision[], actual: ActualCost): ReadonlyMap<Decision, Cost> {
  const costs = new Map<Decision, Cost>();
  for (const [entry, cost] of givenCosts(entries, actual)) {
    if (isUnits(cost)) checkUnits(entry, cost);
    else if (!Number.isSafeInteger(cost) || cost < 0) throw wrongActual(entry, describe(cost));
    // The hold gives held units back.
    if (!holdsAlone(entry)) costs.set(entry, cost);
  }
  return costs;
}

function checkUnits(entry: Decision, units: Units): void {
  for (const [name, number] of Object.entries(units)) {
    if (!Number.isSafeInteger(number) || number < 0) throw wrongActual(entry, `${number} ${shortened(name)}`);
  }
  const wrong = uncounted(units, [policyRefOf(entry)]);
  if (wrong !== undefined) throw new CostError(`settle of ${nameOf(entry)}: ${wrong}`);
}

function wrongActual(entry: Decision, given: string): CostError {
  return new CostError(`the actual cost of ${nameOf(entry)} must be a whole number from 0 to 2^53 - 1, not ${given}`);
}

/** True if all limits of an entry count held units. */
function holdsAlone({ limits }: Decision): boolean {
  return limits.length > 0 && limits.every(({ algorithm }) => algorithm === 'concurrency');
}

function givenCosts(entries: readonly Decision[], actual: ActualCost): readonly (readonly [Decision, Cost])[] {
  if (Array.isArray(actual)) {
    if (actual.length === entries.length) {
      const each = entries.map((entry, index) => [entry, actual[index] as Cost] as const);
      // An empty place leaves an entry as it is.
      return each.filter(([, cost]) => cost !== undefined && cost !== null);
    }
    throw new CostError(
      `settle was given ${actual.length} numbers for a Decision of ${entries.length} entries: give one number for each`,
    );
  }
  const isMap = types.isMap(actual);
  if (!isMap && isRecord(actual) && namesUnits(entries, actual)) return ofUnits(entries, actual as Units);
  if (isMap || isRecord(actual)) {
    const byName: Iterable<readonly [unknown, Cost]> = isMap
      ? (actual as ReadonlyMap<string, Cost>)
      : Object.entries(actual as Record<string, Cost>);
    return Array.from(byName).flatMap(([name, cost]) => {
      const about = entries.filter((entry) => entry.policy === name || policyRefOf(entry).given === name);
      if (about.length > 0) return about.map((entry) => [entry, cost] as const);
      const names = entries.map(nameOf).join(', ');
      throw new CostError(
        `settle was given a number for ${describe(name)}, which is not a policy of the Decision: it has ${names}`,
      );
    });
  }
  if (entries.length === 1) return entries.map((entry) => [entry, actual as number]);
  return meant(entries).map((entry) => [entry, actual as number]);
}

/** Returns the entries that one number is for. */
function meant(entries: readonly Decision[]): readonly Decision[] {
  const rates = entries.filter((entry) => !policyRefOf(entry).holds);
  const named = rates.filter((entry) => costNamed.has(entry));
  return named.length > 0 ? named : rates;
}

/** True if an object names units: some policy of the Decision counts units, and no key is the name of a policy. */
function namesUnits(entries: readonly Decision[], actual: Record<string, unknown>): boolean {
  const isPolicy = (name: string): boolean =>
    entries.some((entry) => entry.policy === name || policyRefOf(entry).given === name);
  return entries.some((entry) => policyRefOf(entry).units !== undefined) && !Object.keys(actual).some(isPolicy);
}

/** Gives each entry the units that its policy counts. The number for `cost` goes to the entries in `meant`. */
function ofUnits(entries: readonly Decision[], actual: Units): readonly (readonly [Decision, Cost])[] {
  if (entries.length === 1) return entries.map((entry) => [entry, actual]);
  const wrong = uncounted(actual, entries.map(policyRefOf));
  if (wrong !== undefined) throw new CostError(`settle of ${entries.map(nameOf).join(', ')}: ${wrong}`);
  const units = Object.fromEntries(Object.entries(actual).filter(([name]) => !isCostName(name)));
  const takesCost = new Set(meant(entries));
  return entries.flatMap((entry) => {
    const share = shareOf(takesCost.has(entry) ? actual : units, policyRefOf(entry));
    return share === undefined ? [] : [[entry, share] as const];
  });
}

/**
 * Settles claimed entries. An entry that certainly was not settled may be settled again. After any other failure the outcome is
 * not known, and the estimate stays charged.
 */
export async function settleEach(
  costs: ReadonlyMap<Decision, Cost>,
  settle: (entry: Decision, cost: Cost) => Promise<unknown>,
): Promise<void> {
  const attempt = async ([entry, cost]: readonly [Decision, Cost]): Promise<void> => {
    try {
      await settle(entry, cost);
    } catch (error) {
      if (!(error instanceof StoreError) || didNotRun(error)) settled.delete(entry);
      throw error;
    }
  };
  await Promise.all(Array.from(costs, attempt));
}
