// Carries calls to the native side and answers back, many in one crossing.

import { AnswerField, AnswerKind, CallField, CallKind, DecisionField, Header, Special } from '../binding/index.js';
import type { ManualClock } from './clock.js';
import { type Cost, numberOf, unitsOf } from './cost.js';
import { Decision, emptyDecision, namedUnitsOf, numbersOf } from './decision.js';
import { lengthOf, numbersAt } from './decision-numbers.js';
import { DenyCache } from './deny-cache.js';
import { invalidKey } from './errors.js';
import { release, retain } from './keep-alive.js';
import { type binding, LOOP_CAN_POLL, native, takeError, unwrap } from './native.js';
import type { PolicyRef } from './policy.js';
import { type CallTarget, readGroup, Tasks } from './tasks.js';
import { atEndOfTick } from './tick.js';

const { DENIAL_GENERATIONS, FIRST_TASK_TICKET } = native;

/** The most calls in one crossing: enough to make it cheap, few enough that Redis begins while more calls are made. */
const MAX_BATCH = 64;
/** The index in `calls` of the number of calls. */
const CALL_COUNT = MAX_BATCH * CallField.Length;
/** Longer keys cross as strings. */
const MAX_KEY_LENGTH = 4096;
const KEY_TEXT_LENGTH = 2 * MAX_KEY_LENGTH;
const ANSWERS_LENGTH = 4096;
/** The index in `answers` of the number of calls that should cross together next. Before it are the generations of denials. */
const COHORT = ANSWERS_LENGTH - 1;

/** An immediate answer, or a promise of it. */
export type Answer = Decision | Promise<Decision>;

/** A call that waits for its answer. */
interface PendingCall {
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
  readonly policyRef: PolicyRef;
  readonly key: string;
  readonly cost: number;
  readonly sentAt: number;
}

/**
 * V8 has a map for each kind of text, so it looks up a method of mixed keys again for each character. This one is
 * known, which makes an awaited check in memory a quarter shorter.
 */
const { charCodeAt } = String.prototype;

/** Carries calls and answers between JavaScript and the native limiter. */
export class Transport {
  readonly nativeLimiter: binding.NativeLimiter;
  readonly tasks: Tasks;
  readonly #calls: Float64Array;
  readonly #keyText: Uint16Array;
  readonly #answers: Float64Array;
  readonly #send: () => number;
  readonly #collect: () => number;
  /**
   * True if each call crosses at once. Memory answers during the crossing, and a manual clock must not move before the
   * crossing.
   */
  readonly #crossesAtOnce: boolean;
  /** Only for a shared store. A store in memory knows at once that a key is still denied. */
  readonly denyCache: DenyCache | undefined;
  /** Calls that wait for an answer, by ticket. */
  readonly #pending: (PendingCall | undefined)[] = [];
  /** Tickets that can be used again. */
  readonly #freeTickets: number[] = [];
  /** The number of calls that wait. */
  #waiting = 0;
  /** The number of them that have crossed. */
  #inFlight = 0;
  /** The number of calls in `calls` that have not crossed. */
  #queued = 0;
  /** The length of their keys. */
  #keyLength = 0;
  /** The number of calls to cross together when nothing is in flight. The native side sends it with the answers. */
  #cohort = 1;
  /** The time at which the first queued call was queued. */
  #sentAt = 0;
  #onIdle: (() => void)[] = [];

  constructor(builder: binding.LimiterBuilder, clock: ManualClock | undefined, repeatsDenials: boolean) {
    // The arrays get buffers here, because V8 would move small arrays out of its heap when the native side first uses them.
    this.#calls = new Float64Array(new ArrayBuffer((CALL_COUNT + 1) * Float64Array.BYTES_PER_ELEMENT));
    this.#keyText = new Uint16Array(new ArrayBuffer(KEY_TEXT_LENGTH * Uint16Array.BYTES_PER_ELEMENT));
    this.#answers = new Float64Array(new ArrayBuffer(ANSWERS_LENGTH * Float64Array.BYTES_PER_ELEMENT));
    this.#crossesAtOnce = builder.isLocal() || clock !== undefined;
    const generations = this.#answers.subarray(COHORT - DENIAL_GENERATIONS, COHORT);
    this.denyCache = repeatsDenials ? new DenyCache(clock, generations) : undefined;
    // Weak: the native side keeps this callback for as long as it lives. A strong reference would keep both for ever.
    const self = new WeakRef(this);
    const onAnswers = (count?: number): void => {
      const transport = self.deref();
      if (count === undefined) transport?.collect();
      else transport?.read(count);
    };
    this.nativeLimiter = unwrap(builder.build(this.#calls, this.#keyText, this.#answers, onAnswers, LOOP_CAN_POLL));
    this.#send = this.nativeLimiter.sendFunction();
    this.#collect = this.nativeLimiter.collectFunction();
    this.tasks = new Tasks(this.nativeLimiter, this);
  }

  /** Makes a call about one policy and key. Returns an immediate answer without a promise. */
  call(kind: number, policyRef: PolicyRef, key: string, cost: number): Answer {
    const length = key.length;
    if (length > MAX_KEY_LENGTH) {
      return key.isWellFormed() ? this.callWith(kind, { policyRef, key, cost }) : Promise.reject(invalidKey(key));
    }
    if (this.#keyLength + length > KEY_TEXT_LENGTH) this.flush();
    const keyText = this.#keyText;
    const keyStart = this.#keyLength;
    for (let index = 0; index < length; index++) keyText[keyStart + index] = charCodeAt.call(key, index);
    const free = this.#freeTickets;
    const ticket = free.length > 0 ? (free[free.length - 1] as number) : this.#pending.length;
    const calls = this.#calls;
    const at = this.#queued * CallField.Length;
    calls[at + CallField.Ticket] = ticket;
    calls[at + CallField.Policy] = policyRef.id;
    calls[at + CallField.Kind] = kind;
    calls[at + CallField.Cost] = cost;
    calls[at + CallField.KeyLength] = length;
    if (this.#crossesAtOnce) {
      const answers = this.#cross(1);
      if (answers !== 0) return this.#immediateAnswer(answers, policyRef, key, cost);
      if (this.denyCache !== undefined) this.#sentAt = this.denyCache.now();
      this.#inFlight++;
      return this.#wait(ticket, policyRef, key, cost);
    }
    this.#keyLength = keyStart + length;
    const isFirst = this.#queued++ === 0;
    if (this.denyCache !== undefined) {
      if (isFirst) this.#sentAt = this.denyCache.now();
      if (kind === CallKind.Charge || kind === CallKind.Refund) this.denyCache.waits = true;
    }
    const answer = this.#wait(ticket, policyRef, key, cost);
    // When nothing is in flight the cohort leaves at once: Redis then works while more calls are made.
    if ((this.#inFlight === 0 && this.#queued >= this.#cohort) || this.#queued === MAX_BATCH) this.flush();
    else if (isFirst) atEndOfTick(flush, this);
    return answer;
  }

  /** Returns the Decision of `acquire` if memory answers at once. One that is not allowed means that the call may have to wait. */
  acquireAtOnce({ policyRef, key, cost, meta, units, priority }: CallTarget): Answer | undefined {
    const isPlain = meta === undefined && units === undefined && priority === undefined;
    if (!this.#crossesAtOnce || !isPlain) return undefined;
    return this.call(CallKind.Acquire, policyRef, key, cost);
  }

  /** Checks several targets, all or nothing. Returns an immediate answer without a promise. */
  checkAll(targets: readonly CallTarget[]): Answer {
    this.flush();
    if (!this.#takes(targets)) return this.tasks.checkAll(targets);
    this.#calls[CALL_COUNT] = targets.length;
    const ticket = this.tasks.takeTicket();
    const count = this.nativeLimiter.checkTogether(ticket);
    if (count === 0) return this.tasks.decisionOf(ticket, targets);
    const answers = count === Special.TooMany ? this.nativeLimiter.overflow() : this.#answers;
    const kind = (answers[AnswerField.Header] as number) & Header.KindMask;
    if (kind === AnswerKind.Group) return readGroup(answers, 0, targets).decision as Decision;
    return Promise.reject(takeError(this.nativeLimiter, answers[AnswerField.Value] as number));
  }

  /** Writes targets to `calls`. Returns false if they must cross in separate arrays. */
  #takes(targets: readonly CallTarget[]): boolean {
    if (targets.length > MAX_BATCH) return false;
    let keyEnd = 0;
    for (const [index, { policyRef, key, cost, meta, units, priority }] of targets.entries()) {
      const keyStart = keyEnd;
      keyEnd += key.length;
      const isPlain = meta === undefined && units === undefined && priority === undefined;
      if (!isPlain || keyEnd > KEY_TEXT_LENGTH) return false;
      for (let at = keyStart; at < keyEnd; at++) this.#keyText[at] = charCodeAt.call(key, at - keyStart);
      const at = index * CallField.Length;
      this.#calls[at + CallField.Policy] = policyRef.id;
      this.#calls[at + CallField.Cost] = cost;
      this.#calls[at + CallField.KeyLength] = key.length;
    }
    return true;
  }

  /** Makes one call in a separate crossing, because it has metadata, units, a class or a long key. */
  callWith(kind: CallKind, { policyRef, key, cost, meta, units, priority }: CallTarget): Answer {
    return this.#callAlone(policyRef, key, cost, (ticket) =>
      this.nativeLimiter.callAlone(ticket, policyRef.id, key, kind, cost, meta, units, priority),
    );
  }

  /** Settles a check. `changed` is true if its policy may have other numbers now. */
  settle(policyRef: PolicyRef, decision: Decision, changed: boolean, actual: Cost): Answer {
    const { key } = decision;
    const { id, units } = policyRef;
    const named = namedUnitsOf(decision);
    const numbers = [...numbersOf(decision)];
    const cost = numberOf(actual);
    const isPlain = typeof actual === 'number' && named === undefined && units === undefined;
    return this.#callAlone(policyRef, key, cost, (ticket) =>
      isPlain
        ? this.nativeLimiter.settle(ticket, id, key, numbers, changed, actual)
        : this.nativeLimiter.settleUnits(ticket, id, key, numbers, [...(named ?? [])], changed, cost, unitsOf(actual)),
    );
  }

  /** Makes one call in a separate crossing. `start` takes its ticket, and returns the result of the crossing. */
  #callAlone(policyRef: PolicyRef, key: string, cost: number, start: (ticket: number) => number): Answer {
    this.flush();
    if (this.denyCache !== undefined) this.#sentAt = this.denyCache.now();
    const ticket = this.#freeTickets.at(-1) ?? this.#pending.length;
    const answers = start(ticket);
    if (answers !== 0) return this.#immediateAnswer(answers, policyRef, key, cost);
    this.#inFlight++;
    return this.#wait(ticket, policyRef, key, cost);
  }

  /** Reports the denials that were repeated here to the core. */
  countRepeated(): void {
    this.denyCache?.takeRepeated(({ id, repeated }) => this.nativeLimiter.countRepeated(id, repeated));
  }

  #wait(ticket: number, policyRef: PolicyRef, key: string, cost: number): Promise<Decision> {
    if (this.#freeTickets.length > 0) this.#freeTickets.pop();
    else this.#pending.push(undefined);
    if (this.#waiting++ === 0) retain(this);
    return new Promise((resolve, reject) => {
      this.#pending[ticket] = { resolve, reject, policyRef, key, cost, sentAt: this.#sentAt };
    });
  }

  /** Returns the answer to the only call of a crossing, which is not pending yet. */
  #immediateAnswer(count: number, policyRef: PolicyRef, key: string, cost: number): Answer {
    const answers = count === Special.TooMany ? this.nativeLimiter.overflow() : this.#answers;
    const header = answers[AnswerField.Header] as number;
    switch (header & Header.KindMask) {
      case AnswerKind.Decision:
        return new Decision(policyRef, key, cost, numbersAt(answers, AnswerField.Header, header));
      case AnswerKind.Nothing:
        return emptyDecision(policyRef, key, cost);
      default:
        return Promise.reject(takeError(this.nativeLimiter, answers[AnswerField.Value] as number));
    }
  }

  /** Sends that many calls. Returns the number of array elements that are answered at once. */
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
    if (this.denyCache !== undefined) this.denyCache.waits = false;
    if (answers !== 0) this.read(answers);
  }

  /** Reads the answers that were delivered. */
  collect(): void {
    const count = this.#collect();
    if (count !== 0) this.read(count);
  }

  /** Reads that many numbers from the answers. */
  read(count: number): void {
    const answers = count === Special.TooMany ? this.nativeLimiter.overflow() : this.#answers;
    const length = count === Special.TooMany ? answers.length : count;
    this.#cohort = this.#answers[COHORT] as number;
    let at = 0;
    while (at < length) {
      const ticket = answers[at + AnswerField.Ticket] as number;
      at = ticket < FIRST_TASK_TICKET ? this.#readAnswer(answers, at, ticket) : this.tasks.read(answers, at, ticket);
    }
    if (this.#onIdle.length > 0 && this.#inFlight === 0) this.#becomeIdle();
  }

  /** Reads the answer of a call that begins at the index `at`. Returns the index of the next answer. */
  #readAnswer(answers: Float64Array, at: number, ticket: number): number {
    const { resolve, reject, policyRef, key, cost, sentAt } = this.#pending[ticket] as PendingCall;
    this.#pending[ticket] = undefined;
    this.#freeTickets.push(ticket);
    this.#inFlight--;
    if (--this.#waiting === 0) release(this);
    const start = at + AnswerField.Header;
    const header = answers[start] as number;
    switch (header & Header.KindMask) {
      case AnswerKind.Decision: {
        const numbers = numbersAt(answers, start, header);
        if (numbers[DecisionField.DeniedFor] !== 0) this.denyCache?.remember(policyRef, key, cost, sentAt, numbers);
        resolve(new Decision(policyRef, key, cost, numbers));
        return start + lengthOf(header);
      }
      case AnswerKind.Nothing:
        resolve(emptyDecision(policyRef, key, cost));
        return start + 1;
      default:
        reject(takeError(this.nativeLimiter, answers[at + AnswerField.Value] as number));
        return at + AnswerField.Value + 1;
    }
  }

  /** Cancels all tasks. Resolves when the limiter is closed and every call is answered. */
  async close(): Promise<void> {
    this.flush();
    this.tasks.cancelAll();
    await this.tasks.begin([], (ticket) => this.nativeLimiter.close(ticket));
    this.collect();
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
