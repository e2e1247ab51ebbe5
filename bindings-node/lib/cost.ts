// The cost of a call: a number, or numbers by the names of units.

import { CostError, describe, invalidCost, unitError } from './errors.js';
import { isRecord } from './given-options.js';
import type { PolicyRef } from './policy.js';

/** Numbers of units by name, as in `{ tokens: 1200 }`, for limits that name a unit. `cost` is for the other limits. */
export type Units = Readonly<Record<string, number>>;

/** The units of a call: a number, or numbers by the names of units. */
export type Cost = number | Units;

/** True for an object literal of any realm. Byte arrays and the like have numbers too, but these are no units. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** True if two names are the same. Names ignore case. */
function isSame(name: string, other: string): boolean {
  return name === other || name.toLowerCase() === other.toLowerCase();
}

/** True if a value is a map of units. Throws if one of its values is no number. */
export function isUnits(cost: unknown): cost is Units {
  if (!isRecord(cost) || !isPlain(cost)) return false;
  const names = Object.keys(cost);
  for (const name of names) if (typeof cost[name] !== 'number') throw unitError(name, cost[name]);
  if (names.length > 1) {
    const twice = names.find((name, index) => names.findIndex((other) => isSame(other, name)) < index);
    if (twice !== undefined)
      throw new CostError(`cost names ${describe(twice)} twice: names ignore case, so give one of them`);
  }
  return names.length > 0;
}

/** Returns the number for limits without a unit, which is the `cost` of a Decision. */
export function numberOf(cost: Cost): number {
  if (typeof cost === 'number') return cost;
  const name = Object.keys(cost).find((name) => isSame(name, 'cost'));
  return name === undefined ? 1 : (cost[name] as number);
}

/** Returns the map, or undefined for a number. */
export function unitsOf(cost: Cost): Units | undefined {
  return typeof cost === 'number' ? undefined : cost;
}

/** A cost, checked as far as its type goes. */
export function checkedCost(cost: unknown): Cost {
  if (typeof cost === 'number' || isUnits(cost)) return cost;
  throw invalidCost(cost);
}

/** Returns the names that a policy counts, with `cost` if a limit names no unit. */
export function countedBy({ units }: PolicyRef): ReadonlySet<string> {
  return new Set(units === undefined ? ['cost'] : units.map((name) => name || 'cost'));
}

/** A function of a request that returns a cost in the units of its policy. */
export interface CostByPolicy {
  /** Takes the units that the policy of a request counts. The call comes before the one for the cost. */
  counts(request: object, counted: ReadonlySet<string>): void;
  /** Returns a cost of 0 for a policy that counts these. */
  nothingOf(counted: ReadonlySet<string>): Cost;
}

export function isByPolicy(cost: unknown): cost is CostByPolicy {
  return typeof cost === 'function' && 'counts' in cost && 'nothingOf' in cost;
}

/** Returns the actual cost that gives the whole charge of a call back. */
export function nothingOf({ units }: PolicyRef): Cost {
  return units === undefined ? 0 : Object.fromEntries(units.map((name) => [name || 'cost', 0]));
}
