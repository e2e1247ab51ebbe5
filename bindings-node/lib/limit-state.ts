// What a Decision says of each limit.

import { DecisionField, DecisionFlag, Header, LimitField, LimitFlag } from '../binding/index.js';
import { type DecisionNumbers, wait } from './decision-numbers.js';
import { native } from './native.js';
import type { Algorithm } from './policy.js';

/** The state of one limit of the policy. */
export interface LimitState {
  readonly algorithm: Algorithm;
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

const ALGORITHMS = native.algorithms() as readonly Algorithm[];
const { ALGORITHM_COUNT } = native;

/** The state of each limit. */
export function limitsOf(numbers: DecisionNumbers): readonly LimitState[] {
  const header = numbers[DecisionField.Header];
  if ((header & DecisionFlag.Simple) !== 0) {
    const exceeded = (header & DecisionFlag.Exceeded) !== 0;
    return [
      {
        ...limitKind(numbers[DecisionField.Limits]),
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
