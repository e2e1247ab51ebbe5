// The numbers of a Decision, as they cross from Rust.

import * as layout from './array-layout.js';

const { COUNT_SHIFT, LIMIT_LENGTH, LIMITS, NEVER, SIMPLE } = layout;

/** The numbers of a Decision, as `array-layout.ts` names them: the fixed ones, and those of the limits. */
export type DecisionNumbers = readonly [
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  ...number[],
];

/** How many numbers a Decision with that header has. */
export function lengthOf(header: number): number {
  return (header & SIMPLE) !== 0 ? LIMITS + 1 : LIMITS + LIMIT_LENGTH * (header >> COUNT_SHIFT);
}

/** Copies the numbers of a Decision out of the array of answers, which is used again. */
export function numbersAt(answers: Float64Array, at: number, header: number): DecisionNumbers {
  // An array literal is allocated in one step, with its doubles inside.
  const numbers: [...DecisionNumbers] = [
    header,
    answers[at + 1] as number,
    answers[at + 2] as number,
    answers[at + 3] as number,
    answers[at + 4] as number,
    answers[at + 5] as number,
    answers[at + 6] as number,
    answers[at + 7] as number,
    answers[at + 8] as number,
    answers[at + 9] as number,
    answers[at + 10] as number,
    answers[at + 11] as number,
    answers[at + 12] as number,
    answers[at + 13] as number,
  ];
  const length = lengthOf(header);
  for (let index = 14; index < length; index++) numbers.push(answers[at + index] as number);
  return numbers;
}

/** Microseconds as milliseconds; `null` for a wait that never ends. */
export function wait(micros: number): number | null {
  return micros === NEVER ? null : micros / 1000;
}
