// The numbers of a Decision, as they cross from Rust.

import { DecisionField, DecisionFlag, Header, LimitField, Special } from '../binding/index.js';

/** The numbers of a Decision while it is built: the fixed ones, then those of the limits. */
export type MutableNumbers = number[] & Record<DecisionField, number>;

/** The numbers of a Decision. */
export type DecisionNumbers = readonly number[] & Readonly<Record<DecisionField, number>>;

/** Returns the count of numbers in a Decision with that header. */
export function lengthOf(header: number): number {
  return (header & DecisionFlag.Simple) !== 0
    ? DecisionField.Limits + 1
    : DecisionField.Limits + LimitField.Length * (header >> Header.CountShift);
}

/** Copies the numbers of a Decision out of the array of answers, which is used again. */
export function numbersAt(answers: Float64Array, at: number, header: number): DecisionNumbers {
  // An array literal is allocated in one step, with its doubles inside. It has all the numbers of a simple Decision.
  const numbers = [
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
    answers[at + 14] as number,
    answers[at + 15] as number,
  ];
  const length = lengthOf(header);
  for (let index = 16; index < length; index++) numbers.push(answers[at + index] as number);
  // Without a limit there is one number less.
  if (length < 16) numbers.pop();
  return numbers as MutableNumbers;
}

/** Returns microseconds as milliseconds, or `null` for a wait that never ends. */
export function wait(micros: number): number | null {
  return micros === Special.Never ? null : micros / 1000;
}
