import { DecisionField, DecisionFlag, Header, LimitField, LimitFlag } from '../binding/index.js';
import { type DecisionNumbers, type MutableNumbers, wait } from './decision-numbers.js';
import { shortened } from './errors.js';
import { type binding, native } from './native.js';
import type { Algorithm, PolicyRef } from './policy.js';

/** Node's `inspect.custom`. It is not imported, so that the types of this package need none of Node's. */
const INSPECT: unique symbol = Symbol.for('nodejs.util.inspect.custom') as never;

/**
 * The origin of an answer: the store, a denial that this process remembers, units that it has leased, or `onStoreError`
 * because the store could not be asked.
 */
export type Source = 'store' | 'deny-cache' | 'lease' | 'fallback';

const SOURCES = native.sources() as readonly Source[];

/** The state of one limit of the policy. */
export interface LimitState {
  readonly algorithm: Algorithm;
  /** The unit that it counts, or `null` if it names none. */
  readonly unit: string | null;
  /** The units of it that the call asked for. */
  readonly cost: number;
  /** The most units it ever admits at once. */
  readonly limit: number;
  /** Its period. For `concurrency` the ttl of its holds. */
  readonly periodMs: number;
  /** The units that it would admit now. */
  readonly remaining: number;
  /** The units used beyond the limit, by a charge or because its numbers were lowered. */
  readonly over: number;
  /** The time until it would admit the cost: 0 if it does now, `null` if it never will. */
  readonly retryAfterMs: number | null;
  /** The time until it admits the same cost again, also in a Decision that is allowed. */
  readonly nextAfterMs: number | null;
  /** The time until it is as if unused. */
  readonly resetAfterMs: number;
  /** True if it refused. */
  readonly exceeded: boolean;
}

/** The place of the flags of the first limit. */
const FIRST_FLAGS = DecisionField.Limits + LimitField.Flags;

/** Returns the index of the limit that `limit` and `remaining` describe. */
export function bindingOf(decision: Decision): number {
  const numbers = numbersOf(decision);
  const header = numbers[DecisionField.Header];
  if ((header & DecisionFlag.Simple) !== 0) return 0;
  const flags = (index: number): number => numbers[FIRST_FLAGS + index * LimitField.Length] as number;
  let index = (header >> Header.CountShift) - 1;
  while (index > 0 && (flags(index) & LimitFlag.Binds) === 0) index--;
  return index;
}

/** Returns the entries of a Decision of `checkAll`. Any other Decision is its only entry. */
export function partsOf(decision: Decision): readonly Decision[] {
  return decision.decisions.length === 0 ? [decision] : decision.decisions;
}

export let numbersOf: (decision: Decision) => DecisionNumbers;
export let policyRefOf: (decision: Decision) => PolicyRef;

/** The answer to a check. A denial is a Decision, never an error. */
export class Decision {
  /**
   * True if the call is allowed. It is a property of the object, as are `key`, `cost` and `decisions`, so a copy of the
   * object has it too. `toJSON`, `JSON.stringify` and printing show all fields.
   */
  readonly allowed: boolean;
  /** The key of the check. */
  readonly key: string;
  /** The units that the call asked of limits without a unit. `limits` has the units of each limit. */
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
    // The key may have other limits when this is read.
    if (this.overridden) ownUnits.set(this, policyRef.unitsFor(key));
  }

  /** The name of the policy, or its canonical notation if it has no name. */
  get policy(): string {
    return this.#policyRef.name;
  }

  /**
   * The consumed units: the cost or 0. A partial check may consume any number between, and a charge always consumes the
   * cost. `settle` starts from this number.
   */
  get granted(): number {
    return this.#numbers[DecisionField.Granted];
  }

  /** The most units that the binding limit ever admits at once. */
  get limit(): number {
    return this.#numbers[DecisionField.Limit];
  }

  /** The units that the binding limit would admit now. That is the limit that refused, or else the one with least left in proportion. */
  get remaining(): number {
    return this.#numbers[DecisionField.Remaining];
  }

  /**
   * The milliseconds until the same check is admitted, if nothing else uses the key: 0 if it is allowed, `null` for
   * never. The number is exact to the microsecond, so round it up if you need whole milliseconds.
   */
  get retryAfterMs(): number | null {
    return wait(this.#numbers[DecisionField.RetryAfter]);
  }

  /**
   * The milliseconds until the same check is admitted again, if nothing else uses the key: 0 if another one is admitted
   * at once, `null` for never. It is useful after an allowed Decision too.
   */
  get nextAfterMs(): number | null {
    if (this.decisions.length === 0 || !this.allowed) return wait(this.#numbers[DecisionField.NextAfter]);
    const all = this.decisions.map((entry) => entry.nextAfterMs);
    return all.reduce((longest, next) => (longest === null || next === null ? null : Math.max(longest, next)), 0);
  }

  /** The milliseconds until the binding limit is as if unused and no block of the key is left. */
  get resetAfterMs(): number {
    return this.#numbers[DecisionField.ResetAfter] / 1000;
  }

  /** The moment at which `resetAfterMs` ends. It stays the same from call to call. */
  get resetAt(): Date {
    return new Date(this.#numbers[DecisionField.ResetAt] / 1000);
  }

  /** For a `leaky-bucket`: the milliseconds to wait before you go on. */
  get delayMs(): number {
    return this.#numbers[DecisionField.Delay] / 1000;
  }

  /** The origin of the answer. */
  get source(): Source {
    return SOURCES[(this.#numbers[DecisionField.Header] >> Header.SourceShift) & Header.KindMask] ?? 'store';
  }

  /** True if a shadow policy would have denied. */
  get shadow(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Shadow) !== 0;
  }

  /**
   * True if the call is denied because the store is missing (`onStoreError: 'closed'`), not because a limit refused. A
   * web layer then answers 503 instead of 429.
   */
  get unavailable(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Unavailable) !== 0;
  }

  /**
   * True if a block after repeated denials denies the call. The policy has several lengths in `blockFor`, and the block
   * was not made by hand.
   */
  get abnormal(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Abnormal) !== 0;
  }

  /**
   * True if the key has other limits than its policy, and they answered. `limits` has them. A key with `'none'` is always allowed.
   */
  get overridden(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Overridden) !== 0;
  }

  /** True if limits learned from the responses to outgoing calls decided: they refuse, or set the units that are left. */
  get learned(): boolean {
    return (this.#numbers[DecisionField.Header] & DecisionFlag.Learned) !== 0;
  }

  /** The state of each limit, in the order of the policy. */
  get limits(): readonly LimitState[] {
    return limitsOf(this.#numbers, this.cost, namedUnitsOf(this));
  }

  /** @internal Returns the Decision of `checkAll`: a copy of this one with the Decisions of all entries. */
  withParts(decisions: readonly Decision[]): Decision {
    return new Decision(this.#policyRef, this.key, this.cost, this.#numbers, decisions);
  }

  /** Returns all fields as a plain object. */
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

/** Returns the fields for printing. Keys may be long, so they are shortened. */
function shortFields(fields: DecisionFields): DecisionFields {
  const short = { ...fields, policy: shortened(fields.policy), key: shortened(fields.key) };
  return fields.decisions === undefined ? short : { ...short, decisions: fields.decisions.map(shortFields) };
}

/** The units of the limits of overridden keys, by Decision. */
const ownUnits = new WeakMap<Decision, readonly string[] | undefined>();

/** Returns the unit of each limit that answered, an empty text for a limit without one. Undefined if none names a unit. */
export function namedUnitsOf(decision: Decision): readonly string[] | undefined {
  return decision.overridden ? ownUnits.get(decision) : policyRefOf(decision).units;
}

/** Returns the HTTP announcement of the limits that answered, if they have one. */
export function announcementOf(decision: Decision): binding.Announcement | undefined {
  const { announcement, announcementFor } = policyRefOf(decision);
  return decision.overridden && announcement !== undefined ? announcementFor(decision.key) : announcement;
}

const NONE: readonly Decision[] = Object.freeze([]);

const NO_NUMBERS = Array.from({ length: DecisionField.Limits + 1 }, () => 0) as MutableNumbers;

/** Returns the answer to a call that had nothing to do, such as a settle to the charged cost. No user sees it. */
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
