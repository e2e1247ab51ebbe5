import { DecisionField, DecisionFlag, Header, LimitField, LimitFlag } from '../binding/index.js';
import { type DecisionNumbers, type MutableNumbers, wait } from './decision-numbers.js';
import { shortened } from './errors.js';
import { native } from './native.js';
import type { Algorithm, PolicyRef } from './policy.js';

/** What Node's `inspect.custom` is. Not imported: the types of the package need none of Node's. */
const INSPECT: unique symbol = Symbol.for('nodejs.util.inspect.custom') as never;

/**
 * What answered: the store, this process from a denial it remembered, or `onStoreError`, because the store could not be
 * asked.
 */
export type Source = 'store' | 'deny-cache' | 'lease' | 'fallback';

const SOURCES = native.sources() as readonly Source[];

/** The state of one limit of the policy. */
export interface LimitState {
  readonly algorithm: Algorithm;
  /** What it counts, where it names it; else `null`. */
  readonly unit: string | null;
  /** The units of it that were asked for. */
  readonly cost: number;
  /** The most units it ever admits at once. */
  readonly limit: number;
  /** Its period; the ttl of the holds for `concurrency`. */
  readonly periodMs: number;
  /** Units it would admit now. */
  readonly remaining: number;
  /** Units that are used beyond it: by a charge, or because its numbers were lowered. */
  readonly over: number;
  /** When it would admit the cost: 0 when it does now, `null` when it never will. */
  readonly retryAfterMs: number | null;
  /** When it admits the same cost again, also in a Decision that is allowed. */
  readonly nextAfterMs: number | null;
  /** Until it is as if unused. */
  readonly resetAfterMs: number;
  /** Whether it refused. */
  readonly exceeded: boolean;
}

/** The index of the limit that `limit` and `remaining` are of. */
export function bindingOf(decision: Decision): number {
  const numbers = numbersOf(decision);
  const header = numbers[DecisionField.Header];
  if ((header & DecisionFlag.Simple) !== 0) return 0;
  let index = (header >> Header.CountShift) - 1;
  while (
    index > 0 &&
    ((numbers[DecisionField.Limits + index * LimitField.Length + LimitField.Flags] as number) & LimitFlag.Binds) === 0
  )
    index--;
  return index;
}

/** The entries of a Decision of `checkAll`; another one itself. */
export function partsOf(decision: Decision): readonly Decision[] {
  return decision.decisions.length === 0 ? [decision] : decision.decisions;
}

export let numbersOf: (decision: Decision) => DecisionNumbers;
export let policyRefOf: (decision: Decision) => PolicyRef;

/** The answer to a check. A denial is a Decision, never an error. */
export class Decision {
  /**
   * Whether it is allowed. A property of its own, as are `key`, `cost` and `decisions`, so that a copy of the object has it too.
   * `toJSON` has all fields, and so have `JSON.stringify` and what is printed.
   */
  readonly allowed: boolean;
  /** The key of the check. */
  readonly key: string;
  /** The units that were asked for, of limits that name no unit: `limits` has those of each. */
  readonly cost: number;
  /** One Decision for each entry of a `checkAll`. Empty otherwise. */
  readonly decisions: readonly Decision[];
  readonly #policyRef: PolicyRef;
  readonly #numbers: DecisionNumbers;

  /** @internal */
  constructor(
    policyRef: PolicyRef,
    key: string,
    cost: number,
    numbers: DecisionNumbers,
    decisions: readonly Decision[] = NONE,
  ) {
    this.allowed = (numbers[DecisionField.Header] & DecisionFlag.Allowed) !== 0;
    this.key = key;
    this.cost = cost;
    this.decisions = decisions;
    this.#policyRef = policyRef;
    this.#numbers = numbers;
    // The limits of the key may be others when this is read.
    if (this.overridden) ownUnits.set(this, policyRef.unitsFor(key));
  }

  /** The policy's name; its canonical notation when it has none. */
  get policy(): string {
    return this.#policyRef.name;
  }

  /**
   * The units that were consumed: the cost or 0, of a partial check anything between, of a charge the cost. `settle` starts
   * from it.
   */
  get granted(): number {
    return this.#numbers[DecisionField.Granted];
  }

  /** The most units that the limit that binds ever admits at once. */
  get limit(): number {
    return this.#numbers[DecisionField.Limit];
  }

  /** Units that the limit that binds would admit now: the one that refused, else the one with least left in proportion. */
  get remaining(): number {
    return this.#numbers[DecisionField.Remaining];
  }

  /**
   * When the same check is admitted if nothing else uses the key, in milliseconds: 0 when allowed, `null` for never. It is
   * exact to the microsecond, so round it up where whole milliseconds are needed.
   */
  get retryAfterMs(): number | null {
    return wait(this.#numbers[DecisionField.RetryAfter]);
  }

  /**
   * When the same check is admitted again if nothing else uses the key, also after a Decision that is allowed, in
   * milliseconds. 0 when another one is admitted at once, `null` for never.
   */
  get nextAfterMs(): number | null {
    if (this.decisions.length === 0 || !this.allowed) return wait(this.#numbers[DecisionField.NextAfter]);
    const all = this.decisions.map((entry) => entry.nextAfterMs);
    return all.reduce((longest, next) => (longest === null || next === null ? null : Math.max(longest, next)), 0);
  }

  /** Until the limit that binds is as if unused and no block of the key is left. */
  get resetAfterMs(): number {
    return this.#numbers[DecisionField.ResetAfter] / 1000;
  }

  /** The moment at which `resetAfterMs` ends; the same between calls. */
  get resetAt(): Date {
    return new Date(this.#numbers[DecisionField.ResetAt] / 1000);
  }

  /** `leaky-bucket`: wait this long before going. */
  get delayMs(): number {
    return this.#numbers[DecisionField.Delay] / 1000;
  }

  /** What answered. */
  get source(): Source {
    return SOURCES[(this.#numbers[DecisionField.Header] >> Header.SourceShift) & Header.KindMask] ?? 'store';
  }

  /** Whether a shadow policy would have denied. */
  get shadow(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Shadow) !== 0;
  }

  /**
   * Whether it is denied because the store is missing (`onStoreError: 'closed'`), not because a limit refused: a web layer
   * then answers 503, and 429 otherwise.
   */
  get unavailable(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Unavailable) !== 0;
  }

  /**
   * Whether it is denied by a block that follows repeated denials: of a policy whose `blockFor` has several lengths, and not of one
   * that was made by hand.
   */
  get abnormal(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Abnormal) !== 0;
  }

  /**
   * Whether its key has other numbers than the policy, which answered: `limits` has them. A key with `'none'` is always allowed.
   */
  get overridden(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Overridden) !== 0;
  }

  /** Whether it says what the other side of an outgoing call said: that is what refuses, or what is left. */
  get learned(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Learned) !== 0;
  }

  /** The state of each limit, in the order of the policy. */
  get limits(): readonly LimitState[] {
    return limitsOf(this.#numbers, this.cost, namedUnitsOf(this));
  }

  /** @internal The Decision of `checkAll`: a copy of this one, with those of all entries. */
  withParts(decisions: readonly Decision[]): Decision {
    return new Decision(this.#policyRef, this.key, this.cost, this.#numbers, decisions);
  }

  /** All fields, as a plain object. */
  toJSON(): DecisionFields {
    const fields = Object.fromEntries(FIELDS.map((name) => [name, this[name]])) as unknown as DecisionFields;
    if (this.decisions.length > 0) fields.decisions = this.decisions.map((decision) => decision.toJSON());
    return fields;
  }

  [INSPECT](depth: number, options: object, show: (value: unknown, options: object) => string): string {
    return `Decision ${depth < 0 ? '{…}' : show(shortFields(this.toJSON()), options)}`;
  }

  static {
    numbersOf = (decision) => decision.#numbers;
    policyRefOf = (decision) => decision.#policyRef;
  }
}

const FIELDS = [
  'allowed',
  'policy',
  'key',
  'cost',
  'granted',
  'limit',
  'remaining',
  'retryAfterMs',
  'nextAfterMs',
  'resetAfterMs',
  'resetAt',
  'delayMs',
  'limits',
  'source',
  'shadow',
  'unavailable',
  'abnormal',
  'overridden',
  'learned',
] as const;

/** The fields of a Decision, as a plain object. */
export type DecisionFields = { -readonly [Name in (typeof FIELDS)[number]]: Decision[Name] } & {
  decisions?: readonly DecisionFields[];
};

/** The fields as they are printed: keys may be long. */
function shortFields(fields: DecisionFields): DecisionFields {
  const short = { ...fields, policy: shortened(fields.policy), key: shortened(fields.key) };
  return fields.decisions === undefined ? short : { ...short, decisions: fields.decisions.map(shortFields) };
}

/** The units of the limits of keys that have other numbers than their policy. */
const ownUnits = new WeakMap<Decision, readonly string[] | undefined>();

/** What each limit that answered counts, an empty text where it names nothing; undefined where none does. */
export function namedUnitsOf(decision: Decision): readonly string[] | undefined {
  return decision.overridden ? ownUnits.get(decision) : policyRefOf(decision).units;
}

/** How HTTP announces the limits that answered, if it does. */
export function announcementOf(decision: Decision): native.Announcement | undefined {
  const { announcement, announcementFor } = policyRefOf(decision);
  return decision.overridden && announcement !== undefined ? announcementFor(decision.key) : announcement;
}

const NONE: readonly Decision[] = Object.freeze([]);

const NO_NUMBERS = Array.from({ length: DecisionField.Limits + 1 }, () => 0) as MutableNumbers;

/** The answer to a call that had nothing to do, as when a check is settled for what it consumed. No user sees it. */
export function emptyDecision(policyRef: PolicyRef, key: string, cost: number): Decision {
  return new Decision(policyRef, key, cost, NO_NUMBERS);
}

const ALGORITHMS = native.algorithms() as readonly Algorithm[];
const { ALGORITHM_COUNT } = native;

/** The state of each limit. */
function limitsOf(numbers: DecisionNumbers, cost: number, units: readonly string[] | undefined): readonly LimitState[] {
  const header = numbers[DecisionField.Header];
  if ((header & DecisionFlag.Simple) !== 0) {
    const exceeded = (header & DecisionFlag.Exceeded) !== 0;
    return [
      {
        ...limitKind(numbers[DecisionField.Limits]),
        unit: null,
        cost,
        limit: numbers[DecisionField.Limit],
        remaining: numbers[DecisionField.Remaining],
        over: 0,
        retryAfterMs: exceeded ? wait(numbers[DecisionField.RetryAfter]) : 0,
        nextAfterMs: wait(numbers[DecisionField.NextAfter]),
        resetAfterMs: numbers[DecisionField.ResetAfter] / 1000,
        exceeded,
      },
    ];
  }
  return Array.from({ length: header >> Header.CountShift }, (_, index) => {
    const start = DecisionField.Limits + index * LimitField.Length;
    const at = (field: number): number => numbers[start + field] as number;
    return {
      ...limitKind(at(LimitField.Kind)),
      unit: units?.[index] || null,
      cost: at(LimitField.Cost),
      limit: at(LimitField.Limit),
      remaining: at(LimitField.Remaining),
      over: at(LimitField.Over),
      retryAfterMs: wait(at(LimitField.RetryAfter)),
      nextAfterMs: wait(at(LimitField.NextAfter)),
      resetAfterMs: at(LimitField.ResetAfter) / 1000,
      exceeded: (at(LimitField.Flags) & LimitFlag.Exceeded) !== 0,
    };
  });
}

function limitKind(kind: number): { readonly algorithm: Algorithm; readonly periodMs: number } {
  return {
    algorithm: ALGORITHMS[kind % ALGORITHM_COUNT] as Algorithm,
    periodMs: Math.floor(kind / ALGORITHM_COUNT) / 1000,
  };
}
