// Carries calls to the native side and answers back: many calls in one crossing, many answers in one.

import * as layout from './array-layout.js';
import { Decision, emptyDecision, numbersOf } from './decision.js';
import { lengthOf, numbersAt } from './decision-numbers.js';
import type { DenyCache } from './deny-cache.js';
import { malformedKey } from './errors.js';
import { release, retain } from './keep-alive.js';
import { type native, takeError } from './native.js';
import type { PolicyRef } from './policy.js';
import { type CallTarget, Tasks } from './tasks.js';
import { atEndOfTick } from './tick.js';

const {
  ANSWER_HEADER,
  ANSWER_TICKET,
  ANSWER_VALUE,
  CALL_COST,
  CALL_KEY_LENGTH,
  CALL_KIND,
  CALL_LENGTH,
  CALL_POLICY,
  CALL_TICKET,
  DECISION,
  DENIED_FOR,
  FIRST_TASK_TICKET,
  KIND_MASK,
  NOTHING,
  TOO_MANY,
} = layout;

/** The most calls of one crossing: enough that crossing costs little, few enough that Redis begins while we go on. */
const MAX_BATCH = 64;
/** The number of `calls` that says how many calls there are. */
const CALL_COUNT = MAX_BATCH * CALL_LENGTH;
/** Longer keys cross as strings. */
const MAX_KEY_LENGTH = 4096;
const KEY_TEXT_LENGTH = 2 * MAX_KEY_LENGTH;
const ANSWERS_LENGTH = 4096;
/** The number of `answers` that says how many calls should cross together next. */
const COHORT = ANSWERS_LENGTH - 1;

/** Opens the native limiter on these arrays (see `array-layout.ts`). */
export type OpenNative = (
  calls: Float64Array,
  keyText: Uint16Array,
  answers: Float64Array,
  /** Called when answers were delivered: with how many numbers, or with nothing when they are still to be collected. */
  onAnswers: (count?: number) => void,
) => native.NativeLimiter;

/** A call that waits for its answer. */
interface PendingCall {
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
  readonly policyRef: PolicyRef;
  readonly key: string;
  readonly cost: number;
  readonly sentAt: number;
}

/** The way of calls and answers between JavaScript and the native limiter. */
export class Transport {
  readonly nativeLimiter: native.NativeLimiter;
  readonly tasks: Tasks;
  readonly #calls: Float64Array;
  readonly #keyText: Uint16Array;
  readonly #answers: Float64Array;
  readonly #send: () => number;
  readonly #collect: () => number;
  /**
   * Whether each call crosses at once: memory answers during the crossing, and a manual clock must not move before the
   * crossing.
   */
  readonly #crossesAtOnce: boolean;
  readonly #denyCache: DenyCache | undefined;
  /** Calls that wait for an answer, by ticket. */
  readonly #pending: (PendingCall | undefined)[] = [];
  /** Tickets that can be used again. */
  readonly #freeTickets: number[] = [];
  /** How many calls wait. */
  #waiting = 0;
  /** How many of them have crossed. */
  #inFlight = 0;
  /** How many are in `calls` and have not crossed. */
  #queued = 0;
  /** The length of their keys. */
  #keyLength = 0;
  /** How many calls cross together when nothing is in flight. The native side says it with the answers. */
  #cohort = 1;
  /** When the first queued call was queued. */
  #sentAt = 0;
  #onIdle: (() => void)[] = [];

  constructor(open: OpenNative, crossesAtOnce: boolean, denyCache: DenyCache | undefined) {
    // With buffers of their own: V8 would move small arrays out of its heap when the native side first uses them.
    this.#calls = new Float64Array(new ArrayBuffer((CALL_COUNT + 1) * Float64Array.BYTES_PER_ELEMENT));
    this.#keyText = new Uint16Array(new ArrayBuffer(KEY_TEXT_LENGTH * Uint16Array.BYTES_PER_ELEMENT));
    this.#answers = new Float64Array(new ArrayBuffer(ANSWERS_LENGTH * Float64Array.BYTES_PER_ELEMENT));
    this.#crossesAtOnce = crossesAtOnce;
    this.#denyCache = denyCache;
    // Weak: the native side keeps this callback for as long as it lives. A strong reference would keep both for ever.
    const self = new WeakRef(this);
    this.nativeLimiter = open(this.#calls, this.#keyText, this.#answers, (count) => {
      const transport = self.deref();
      if (count === undefined) transport?.collect();
      else transport?.read(count);
    });
    this.#send = this.nativeLimiter.sendFunction();
    this.#collect = this.nativeLimiter.collectFunction();
    this.tasks = new Tasks(this.nativeLimiter, this);
  }

  /** Makes a call about one policy and key. An answer that is there at once is returned without a promise. */
  call(kind: number, policyRef: PolicyRef, key: string, cost: number): Decision | Promise<Decision> {
    const length = key.length;
    if (length > MAX_KEY_LENGTH) return this.#callWithLongKey(kind, policyRef, key, cost);
    if (this.#keyLength + length > KEY_TEXT_LENGTH) this.flush();
    const keyText = this.#keyText;
    const keyStart = this.#keyLength;
    for (let index = 0; index < length; index++) keyText[keyStart + index] = key.charCodeAt(index);
    const free = this.#freeTickets;
    const ticket = free.length > 0 ? (free[free.length - 1] as number) : this.#pending.length;
    const calls = this.#calls;
    const at = this.#queued * CALL_LENGTH;
    calls[at + CALL_TICKET] = ticket;
    calls[at + CALL_POLICY] = policyRef.id;
    calls[at + CALL_KIND] = kind;
    calls[at + CALL_COST] = cost;
    calls[at + CALL_KEY_LENGTH] = length;
    if (this.#crossesAtOnce) {
      const answers = this.#cross(1);
      if (answers !== 0) return this.#immediateAnswer(answers, policyRef, key, cost);
      if (this.#denyCache !== undefined) this.#sentAt = this.#denyCache.now();
      this.#inFlight++;
      return this.#wait(ticket, policyRef, key, cost);
    }
    this.#keyLength = keyStart + length;
    const isFirst = this.#queued++ === 0;
    if (isFirst && this.#denyCache !== undefined) this.#sentAt = this.#denyCache.now();
    const answer = this.#wait(ticket, policyRef, key, cost);
    // When nothing is in flight the cohort leaves at once: Redis then works while more calls are made.
    if ((this.#inFlight === 0 && this.#queued >= this.#cohort) || this.#queued === MAX_BATCH) this.flush();
    else if (isFirst) atEndOfTick(flush, this);
    return answer;
  }

  #callWithLongKey(kind: number, policyRef: PolicyRef, key: string, cost: number): Decision | Promise<Decision> {
    if (!key.isWellFormed()) return Promise.reject(malformedKey());
    return this.callAlone(policyRef, key, cost, (ticket) =>
      this.nativeLimiter.callWithLongKey(ticket, policyRef.id, key, kind, cost),
    );
  }

  /** Makes one call in a crossing of its own. `start` is given its ticket, and returns what a crossing returns. */
  callAlone(
    policyRef: PolicyRef,
    key: string,
    cost: number,
    start: (ticket: number) => number,
  ): Decision | Promise<Decision> {
    this.flush();
    if (this.#denyCache !== undefined) this.#sentAt = this.#denyCache.now();
    const ticket = this.#freeTickets.at(-1) ?? this.#pending.length;
    const answers = start(ticket);
    if (answers !== 0) return this.#immediateAnswer(answers, policyRef, key, cost);
    this.#inFlight++;
    return this.#wait(ticket, policyRef, key, cost);
  }

  /** Checks with metadata, which crosses alone. */
  checkWithMeta(
    { policyRef, key, cost }: CallTarget,
    meta: Uint8Array,
    partial: boolean,
  ): Decision | Promise<Decision> {
    return this.callAlone(policyRef, key, cost, (ticket) =>
      this.nativeLimiter.checkWithMeta(ticket, policyRef.id, key, cost, partial, meta),
    );
  }

  /** Settles a check, which crosses alone. `changed`: its policy may have other numbers now. */
  settle(policyRef: PolicyRef, decision: Decision, changed: boolean, actual: number): Decision | Promise<Decision> {
    const { key } = decision;
    return this.callAlone(policyRef, key, actual, (ticket) =>
      this.nativeLimiter.settle(ticket, policyRef.id, key, [...numbersOf(decision)], changed, actual),
    );
  }

  /** Forgets everything, also what is remembered here. */
  async clearAll(): Promise<void> {
    await this.tasks.begin([], (ticket) => this.nativeLimiter.clearAll(ticket));
    this.#denyCache?.forgetAll();
  }

  /** Begins a task about one key that may give units back to it. */
  async change(target: CallTarget, start: (ticket: number, policy: number) => number): Promise<void> {
    const task = this.tasks.begin([target], (ticket) => start(ticket, target.policyRef.id));
    await (this.#denyCache?.forgetDuring(target.key, task) ?? task);
  }

  #wait(ticket: number, policyRef: PolicyRef, key: string, cost: number): Promise<Decision> {
    if (this.#freeTickets.length > 0) this.#freeTickets.pop();
    else this.#pending.push(undefined);
    if (this.#waiting++ === 0) retain(this);
    return new Promise((resolve, reject) => {
      this.#pending[ticket] = { resolve, reject, policyRef, key, cost, sentAt: this.#sentAt };
    });
  }

  /** The answer to the only call of a crossing, which is not pending yet. */
  #immediateAnswer(count: number, policyRef: PolicyRef, key: string, cost: number): Decision | Promise<Decision> {
    const answers = count === TOO_MANY ? this.nativeLimiter.overflow() : this.#answers;
    const header = answers[ANSWER_HEADER] as number;
    switch (header & KIND_MASK) {
      case DECISION:
        return new Decision(policyRef, key, cost, numbersAt(answers, ANSWER_HEADER, header));
      case NOTHING:
        return emptyDecision(policyRef, key, cost);
      default:
        return Promise.reject(takeError(this.nativeLimiter, answers[ANSWER_VALUE] as number));
    }
  }

  /** Sends that many calls. How many numbers of answers are there at once. */
  #cross(count: number): number {
    this.#calls[CALL_COUNT] = count;
    return this.#send();
  }

  /** Sends the calls that are queued. */
  flush(): void {
    const count = this.#queued;
    if (count === 0) return;
    this.#queued = 0;
    this.#keyLength = 0;
    this.#inFlight += count;
    this.#cohort = 1;
    const answers = this.#cross(count);
    if (answers !== 0) this.read(answers);
  }

  /** Reads the answers that were delivered. */
  collect(): void {
    const count = this.#collect();
    if (count !== 0) this.read(count);
  }

  /** Reads that many numbers of answers. */
  read(count: number): void {
    const answers = count === TOO_MANY ? this.nativeLimiter.overflow() : this.#answers;
    const length = count === TOO_MANY ? answers.length : count;
    this.#cohort = this.#answers[COHORT] as number;
    let at = 0;
    while (at < length) {
      const ticket = answers[at + ANSWER_TICKET] as number;
      at = ticket < FIRST_TASK_TICKET ? this.#readAnswer(answers, at, ticket) : this.tasks.read(answers, at, ticket);
    }
    if (this.#onIdle.length > 0 && this.#inFlight === 0) this.#becomeIdle();
  }

  /** Reads the answer of a call, which begins at that number. Where the next answer begins. */
  #readAnswer(answers: Float64Array, at: number, ticket: number): number {
    const { resolve, reject, policyRef, key, cost, sentAt } = this.#pending[ticket] as PendingCall;
    this.#pending[ticket] = undefined;
    this.#freeTickets.push(ticket);
    this.#inFlight--;
    if (--this.#waiting === 0) release(this);
    const start = at + ANSWER_HEADER;
    const header = answers[start] as number;
    switch (header & KIND_MASK) {
      case DECISION: {
        const numbers = numbersAt(answers, start, header);
        if (numbers[DENIED_FOR] !== 0) this.#denyCache?.remember(policyRef, key, cost, sentAt, numbers);
        resolve(new Decision(policyRef, key, cost, numbers));
        return start + lengthOf(header);
      }
      case NOTHING:
        resolve(emptyDecision(policyRef, key, cost));
        return start + 1;
      default:
        reject(takeError(this.nativeLimiter, answers[at + ANSWER_VALUE] as number));
        return at + ANSWER_VALUE + 1;
    }
  }

  /** Cancels all tasks; resolves when every call is answered. */
  async close(): Promise<void> {
    this.flush();
    this.nativeLimiter.close();
    this.collect();
    this.tasks.close();
    if (this.#inFlight > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  #becomeIdle(): void {
    const listeners = this.#onIdle;
    this.#onIdle = [];
    for (const listener of listeners) listener();
  }
}

// One function for all transports: a closure for every tick would cost more than the call.
function flush(transport: Transport): void {
  transport.flush();
}
