// Answers as the native side writes them: numbers in one array that is used again and again.

import { AT, COUNT, DENIED_FOR, LIMITS, type Numbers, PER_LIMIT, SIMPLE } from './decision.js';

// What a record is, in the low four bits of its head.
export const DECISION = 0;
export const GROUP = 1;
export const NOTHING = 2;
export const FAILURE = 3;
export const HOLD = 4;
export const ATTEMPTS = 5;

/** Numbers before those of a Decision: the ticket. */
export const TICKET = 1;

/** How many numbers a Decision has whose head is that. */
export function lengthOf(head: number): number {
  return (head & SIMPLE) !== 0 ? LIMITS + 1 : LIMITS + PER_LIMIT * (head >> COUNT);
}

/** The numbers of a Decision, as its own array: the one they are read from is used again. */
export function numbersAt(records: Float64Array, at: number, head: number): Numbers {
  // A literal is made in one step, with its doubles inside.
  const numbers: [...Numbers] = [
    head,
    records[at + 1] as number,
    records[at + 2] as number,
    records[at + 3] as number,
    records[at + 4] as number,
    records[at + 5] as number,
    records[at + 6] as number,
    records[at + 7] as number,
    records[at + DENIED_FOR] as number,
    records[at + AT] as number,
    records[at + LIMITS] as number,
  ];
  const length = lengthOf(head);
  for (let index = LIMITS + 1; index < length; index++) numbers.push(records[at + index] as number);
  return numbers;
}
