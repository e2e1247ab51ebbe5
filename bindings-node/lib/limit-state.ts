// What a Decision says of each limit.

import * as layout from './array-layout.js';
import { type DecisionNumbers, wait } from './decision-numbers.js';
import { native } from './native.js';
import type { Algorithm } from './policy.js';

const {
  ALGORITHM_COUNT,
  COUNT_SHIFT,
  EXCEEDED,
  HEADER,
  LIMIT,
  LIMIT_EXCEEDED,
  LIMIT_FLAGS,
  LIMIT_KIND,
  LIMIT_LENGTH,
  LIMIT_LIMIT,
  LIMIT_NEXT_AFTER,
  LIMIT_OVER,
  LIMIT_REMAINING,
  LIMIT_RESET_AFTER,
  LIMIT_RETRY_AFTER,
  LIMITS,
  NEXT_AFTER,
  REMAINING,
  RESET_AFTER,
  RETRY_AFTER,
  SIMPLE,
} = layout;

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
  /** The same also of a Decision that is allowed: when it admits the same cost again. */
  readonly nextAfterMs: number | null;
  /** Until it is as if unused. */
  readonly resetAfterMs: number;
  /** Whether it refused. */
  readonly exceeded: boolean;
}

const ALGORITHMS = native.algorithms() as readonly Algorithm[];

/** The state of each limit. */
export function limitsOf(numbers: DecisionNumbers): readonly LimitState[] {
  const header = numbers[HEADER];
  if ((header & SIMPLE) !== 0) {
    const exceeded = (header & EXCEEDED) !== 0;
    return [
      {
        ...limitKind(numbers[LIMITS]),
        limit: numbers[LIMIT],
        remaining: numbers[REMAINING],
        over: 0,
        retryAfterMs: exceeded ? wait(numbers[RETRY_AFTER]) : 0,
        nextAfterMs: wait(numbers[NEXT_AFTER]),
        resetAfterMs: numbers[RESET_AFTER] / 1000,
        exceeded,
      },
    ];
  }
  return Array.from({ length: header >> COUNT_SHIFT }, (_, index) => {
    const start = LIMITS + index * LIMIT_LENGTH;
    const at = (field: number): number => numbers[start + field] as number;
    return {
      ...limitKind(at(LIMIT_KIND)),
      limit: at(LIMIT_LIMIT),
      remaining: at(LIMIT_REMAINING),
      over: at(LIMIT_OVER),
      retryAfterMs: wait(at(LIMIT_RETRY_AFTER)),
      nextAfterMs: wait(at(LIMIT_NEXT_AFTER)),
      resetAfterMs: at(LIMIT_RESET_AFTER) / 1000,
      exceeded: (at(LIMIT_FLAGS) & LIMIT_EXCEEDED) !== 0,
    };
  });
}

function limitKind(kind: number): { readonly algorithm: Algorithm; readonly periodMs: number } {
  return {
    algorithm: ALGORITHMS[kind % ALGORITHM_COUNT] as Algorithm,
    periodMs: Math.floor(kind / ALGORITHM_COUNT) / 1000,
  };
}
