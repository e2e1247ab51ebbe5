// What a call takes: a number, or numbers by the names of units.

import { CostError, describe, invalidCost, unitError } from './errors.js';
import { isRecord } from './given-options.js';
import type { PolicyRef } from './policy.js';

/** Numbers of units by their names, as in `{ tokens: 1200 }`: for limits that name what they count. `cost` is for those that do not. */
export type Units = Readonly<Record<string, number>>;

/** The units of a call: a number, or numbers by the names of units. */
export type Cost = number | Units;

/** Whether an object is written with braces, here or in another realm: bytes and the like have numbers that are no units. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether two names are one: names ignore case. */
function isSame(name: string, other: string): boolean {
  return name === other || name.toLowerCase() === other.toLowerCase();
}

/** Whether a value is a map of units, whose numbers are checked; an error where one is no number. */
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

/** Whether a name is that of the number for limits without a unit. Names ignore case. */
export function isCostName(name: string): boolean {
  return isSame(name, 'cost');
}

/** The number for limits without a unit, where a map has one. */
function costIn(units: Units): number | undefined {
  const name = Object.hasOwn(units, 'cost') ? 'cost' : Object.keys(units).find(isCostName);
  return name === undefined ? undefined : units[name];
}

/** The number of limits without a unit: what a Decision calls its cost. */
export function numberOf(cost: Cost): number {
  return typeof cost === 'number' ? cost : (costIn(cost) ?? 1);
}

/** The map; undefined for a number. */
export function unitsOf(cost: Cost): Units | undefined {
  return typeof cost === 'number' ? undefined : cost;
}

/** A cost, checked as far as its type goes. */
export function checkedCost(cost: unknown): Cost {
  if (typeof cost === 'number' || isUnits(cost)) return cost;
  throw invalidCost(cost);
}

/** The names that a policy counts, `cost` among them where a limit names nothing. */
export function countedBy({ units }: PolicyRef): ReadonlySet<string> {
  return new Set(units === undefined ? ['cost'] : units.map((name) => name || 'cost'));
}

const NO_COST: Units = Object.freeze({ cost: 0 });

function counts(counted: ReadonlySet<string>, name: string): boolean {
  return counted.has(name) || counted.has(name.toLowerCase());
}

/**
 * The cost of one of several policies that share it: of a map what the policy counts. `undefined` where it counts none of it, so
 * that one unit is taken.
 */
export function shareOf(cost: Cost, policyRef: PolicyRef): Cost | undefined {
  if (typeof cost === 'number') return cost;
  // A number, which is asked faster. 0 is none: it takes nothing.
  if (policyRef.units === undefined) return costIn(cost) === 0 ? NO_COST : costIn(cost);
  const counted = countedBy(policyRef);
  const share = Object.entries(cost).filter(([name]) => counts(counted, name));
  return share.length === 0 ? undefined : Object.fromEntries(share);
}

/** Why a map is not for these policies: it names what none of them counts. */
export function uncounted(cost: Cost, policyRefs: readonly PolicyRef[]): string | undefined {
  if (typeof cost === 'number') return undefined;
  const counted = new Set(policyRefs.flatMap((policyRef) => [...countedBy(policyRef)]));
  const unknown = Object.keys(cost).find((name) => !counts(counted, name));
  if (unknown === undefined) return undefined;
  return `cost names ${describe(unknown)}, which no policy counts: they count ${[...counted].join(', ')}`;
}

/** A function of a request whose cost has the units that a policy counts. */
export interface CostByPolicy {
  /** The policy of a request counts these. It is called before the cost is asked for. */
  counts(request: object, counted: ReadonlySet<string>): void;
  /** A cost of nothing, of a policy that counts these. */
  nothingOf(counted: ReadonlySet<string>): Cost;
}

export function isByPolicy(cost: unknown): cost is CostByPolicy {
  return typeof cost === 'function' && 'counts' in cost && 'nothingOf' in cost;
}

/** What gives back all that a call has consumed of a policy. */
export function nothingOf({ units }: PolicyRef): Cost {
  return units === undefined ? 0 : Object.fromEntries(units.map((name) => [name || 'cost', 0]));
}
