import process from 'node:process';
import { COUNT, DENIED_FOR, Decision, type Numbers, type PolicyRef } from './decision.js';
import type { DenyCache } from './deny-cache.js';
import { ClosedError, noText, type TidegateError, thrown } from './errors.js';
import * as alive from './keep-alive.js';
import type { native } from './native.js';
import { ATTEMPTS, DECISION, FAILURE, GROUP, HOLD, lengthOf, NOTHING, numbersAt, TICKET } from './record.js';

// What to do; `bindings-node/src/channel.rs` has the same list.
export const CHECK = 0;
export const PEEK = 1;
export const CHARGE = 2;
export const REFUND = 3;
/** And the number of who answered the check. */
export const SETTLE = 4;

/** Questions that cross at once: enough that crossing costs little, few enough that Redis begins while we go on. */
const BATCH = 64;
/** Numbers of one question: ticket, policy, what to do, cost, units of the key, units charged before. */
const ASK = 6;
/** Where it stands how many there are. */
const ASKED = BATCH * ASK;
/** Longer keys cross as texts. */
const LONGEST = 4096;
const TEXT = 2 * LONGEST;
const ANSWERS = 4096;
/** So many that are answered together ask again in two halves: Redis then works on one while we do on the other. */
const SPLIT = 16;
/** From here on tickets are of tasks, and never used again: a task that was given up may still say something. */
const TASKS = 2 ** 48;

/** TaskResult by the native side when answers do not fit. */
const TOO_MANY = -1;

/** Who waits for an answer. */
interface PendingCall {
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
  readonly policyRef: PolicyRef;
  readonly key: string;
  readonly cost: number;
  readonly sent: number;
}

/** An entry of `checkAll`. */
export interface Entry {
  readonly policyRef: PolicyRef;
  readonly key: string;
  readonly cost: number;
}

/** What a task may come to. */
export interface TaskResult {
  readonly decision?: Decision;
  /** A hold's number. */
  readonly hold?: number;
  readonly attempts?: native.Attempt[];
}

interface Task {
  readonly resolve: (said: TaskResult) => void;
  readonly reject: (error: unknown) => void;
  readonly entries: readonly Entry[];
  readonly ended: () => void;
}

/** The way to the native side and back: many questions in one call, many answers in one. */
export class Transport {
  readonly #asks: Float64Array;
  readonly #text: Uint16Array;
  readonly #answers: Float64Array;
  readonly #channel: native.NativeLimiter;
  readonly #send: () => number;
  readonly #fetch: () => number;
  /** Whether each question crosses at once: memory answers on the way, and a clock that is moved must not move before. */
  readonly #direct: boolean;
  readonly #denyCache: DenyCache | undefined;
  /** Who waits, by ticket; tickets that are free again are used again. */
  readonly #waiters: (PendingCall | undefined)[] = [];
  readonly #free: number[] = [];
  readonly #tasks = new Map<number, Task>();
  #nextTask = TASKS;
  #count = 0;
  /** With how many it leaves: as many as were answered together, who mostly ask again together. */
  #company = 1;
  #units = 0;
  #inFlight = 0;
  #sent = 0;
  #waiting = 0;
  #idle: (() => void)[] = [];

  constructor(open: TransportOptions['open'], direct: boolean, denied: DenyCache | undefined) {
    // Arrays of their own, so that no engine moves them to where their first use suits it.
    this.#asks = new Float64Array(new ArrayBuffer((BATCH * ASK + 1) * 8));
    this.#text = new Uint16Array(new ArrayBuffer(TEXT * 2));
    this.#answers = new Float64Array(new ArrayBuffer(ANSWERS * 8));
    this.#direct = direct;
    this.#denyCache = denied;
    // The native side holds the bell for as long as it lives: if that held us, neither would ever be collected.
    const self = new WeakRef(this);
    this.#channel = open(this.#asks, this.#text, this.#answers, (count) => {
      const transport = self.deref();
      if (transport === undefined) return;
      if (count === undefined) transport.#collect();
      else transport.#read(count);
    });
    this.#send = this.#channel.sender();
    this.#fetch = this.#channel.collector();
  }

  #sendFirst(count: number): number {
    this.#asks[ASKED] = count;
    return this.#send();
  }

  #up(): void {
    if (this.#waiting++ === 0) alive.enter(this);
  }

  #down(): void {
    if (--this.#waiting === 0) alive.leave(this);
  }

  get channel(): native.NativeLimiter {
    return this.#channel;
  }

  /** Asks about one policy and key. What is answered on the way needs no promise. */
  ask(what: number, policyRef: PolicyRef, key: string, cost: number, charged: number): Decision | Promise<Decision> {
    const units = key.length;
    if (units > LONGEST) return this.#long(what, policyRef, key, cost, charged);
    if (this.#units + units > TEXT) this.flush();
    const text = this.#text;
    const start = this.#units;
    for (let index = 0; index < units; index++) text[start + index] = key.charCodeAt(index);
    const free = this.#free;
    const ticket = free.length > 0 ? (free[free.length - 1] as number) : this.#waiters.length;
    const asks = this.#asks;
    const at = this.#count * ASK;
    asks[at] = ticket;
    asks[at + 1] = policyRef.number;
    asks[at + 2] = what;
    asks[at + 3] = cost;
    asks[at + 4] = units;
    asks[at + 5] = charged;
    if (this.#direct) {
      const answers = this.#sendFirst(1);
      if (answers !== 0) return this.#atHand(answers, policyRef, key, cost);
      if (this.#denyCache !== undefined) this.#sent = this.#denyCache.now();
      this.#inFlight++;
      return this.#wait(ticket, policyRef, key, cost);
    }
    this.#units = start + units;
    const first = this.#count++ === 0;
    if (first && this.#denyCache !== undefined) this.#sent = this.#denyCache.now();
    const answer = this.#wait(ticket, policyRef, key, cost);
    // At once when nothing is under way; Redis then works while the others are still being asked.
    if ((this.#inFlight === 0 && this.#count >= this.#company) || this.#count === BATCH) this.flush();
    else if (first) process.nextTick(flushed, this);
    return answer;
  }

  #wait(ticket: number, policyRef: PolicyRef, key: string, cost: number): Promise<Decision> {
    if (this.#free.length > 0) this.#free.pop();
    else this.#waiters.push(undefined);
    this.#up();
    return new Promise((resolve, reject) => {
      this.#waiters[ticket] = { resolve, reject, policyRef, key, cost, sent: this.#sent };
    });
  }

  /** What was answered on the way: to one question, for which nobody waits yet. */
  #atHand(count: number, policyRef: PolicyRef, key: string, cost: number): Decision | Promise<Decision> {
    const answers = count === TOO_MANY ? this.#channel.overflow() : this.#answers;
    const head = answers[TICKET] as number;
    if ((head & 15) === DECISION) return new Decision(policyRef, key, cost, numbersAt(answers, TICKET, head));
    if ((head & 15) === NOTHING) return nothing(policyRef, key, cost);
    return Promise.reject(this.#failure(answers[2] as number));
  }

  #long(what: number, policyRef: PolicyRef, key: string, cost: number, charged: number): Decision | Promise<Decision> {
    if (!key.isWellFormed()) return Promise.reject(noText());
    return this.single(policyRef, key, cost, (ticket) =>
      this.#channel.long(ticket, policyRef.number, key, what, cost, charged),
    );
  }

  /** Asks one question in a call of its own. */
  single(
    policyRef: PolicyRef,
    key: string,
    cost: number,
    ask: (ticket: number) => number,
  ): Decision | Promise<Decision> {
    this.flush();
    if (this.#denyCache !== undefined) this.#sent = this.#denyCache.now();
    const ticket = this.#free.at(-1) ?? this.#waiters.length;
    const answers = ask(ticket);
    if (answers !== 0) return this.#atHand(answers, policyRef, key, cost);
    this.#inFlight++;
    return this.#wait(ticket, policyRef, key, cost);
  }

  /** A Decision that is known without asking. */
  known(policyRef: PolicyRef, key: string, cost: number, numbers: Numbers): Decision {
    return new Decision(policyRef, key, cost, numbers);
  }

  /** Sends what was collected. */
  flush(): void {
    const count = this.#count;
    if (count === 0) return;
    this.#count = 0;
    this.#units = 0;
    this.#inFlight += count;
    this.#company = 1;
    const answers = this.#sendFirst(count);
    if (answers !== 0) this.#read(answers);
  }

  /** Begins what may take its time, and can be given up. */
  task(entries: readonly Entry[], begin: (ticket: number) => number, signal?: AbortSignal): Promise<TaskResult> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    this.flush();
    const ticket = this.#nextTask++;
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        // What has been answered by now is not given up.
        this.#collect();
        if (!this.#tasks.delete(ticket)) return;
        this.#channel.cancel(ticket);
        this.#down();
        reject(signal?.reason);
      };
      const ended = (): void => signal?.removeEventListener('abort', abort);
      signal?.addEventListener('abort', abort);
      this.#tasks.set(ticket, { resolve, reject, entries, ended });
      this.#up();
      const answers = begin(ticket);
      if (answers !== 0) this.#read(answers);
    });
  }

  #collect(): void {
    const answers = this.#fetch();
    if (answers !== 0) this.#read(answers);
  }

  #read(count: number): void {
    const answers = count === TOO_MANY ? this.#channel.overflow() : this.#answers;
    const length = count === TOO_MANY ? answers.length : count;
    let at = 0;
    const before = this.#inFlight;
    while (at < length) {
      const ticket = answers[at] as number;
      at = ticket < TASKS ? this.#answer(answers, at, ticket) : this.#ended(answers, at, ticket);
    }
    const answered = before - this.#inFlight;
    this.#company = answered < SPLIT ? Math.max(answered, 1) : answered >> 1;
    if (this.#idle.length > 0) this.#tellIdle();
  }

  #answer(answers: Float64Array, at: number, ticket: number): number {
    const waiter = this.#waiters[ticket] as PendingCall;
    this.#waiters[ticket] = undefined;
    this.#free.push(ticket);
    this.#inFlight--;
    this.#down();
    const head = answers[at + TICKET] as number;
    const { policyRef, key, cost } = waiter;
    switch (head & 15) {
      case DECISION: {
        const numbers = numbersAt(answers, at + TICKET, head);
        if (numbers[DENIED_FOR] !== 0) this.#denyCache?.remember(policyRef, key, cost, waiter.sent, numbers);
        waiter.resolve(new Decision(policyRef, key, cost, numbers));
        return at + TICKET + lengthOf(head);
      }
      case NOTHING:
        waiter.resolve(nothing(policyRef, key, cost));
        return at + 2;
      default:
        waiter.reject(this.#failure(answers[at + 2] as number));
        return at + 3;
    }
  }

  #ended(answers: Float64Array, at: number, ticket: number): number {
    const task = this.#tasks.get(ticket);
    const head = answers[at + TICKET] as number;
    const number = answers[at + 2] as number;
    if (task !== undefined) {
      this.#tasks.delete(ticket);
      this.#channel.cancel(ticket);
      this.#down();
      task.ended();
    }
    const end = (): number => at + TICKET + lengthOf(head);
    const first = task?.entries[0];
    switch (head & 15) {
      case DECISION:
        if (first !== undefined) task?.resolve({ decision: made(first, numbersAt(answers, at + TICKET, head)) });
        return end();
      case GROUP: {
        let next = at + 3;
        const decisions: Decision[] = [];
        for (let index = 0; index < head >> COUNT; index++) {
          const begins = next + TICKET;
          const part = answers[begins] as number;
          const entry = task?.entries[index];
          if (entry !== undefined) decisions.push(made(entry, numbersAt(answers, begins, part)));
          next = begins + lengthOf(part);
        }
        const speaker = decisions[number];
        if (speaker !== undefined) task?.resolve({ decision: speaker.withParts(decisions) });
        return next;
      }
      case HOLD: {
        const begins = at + 3 + TICKET;
        const part = answers[begins] as number;
        if (first === undefined) {
          // Nobody waits for it any more.
          this.#channel.discard(number);
        } else {
          this.#channel.keep(number);
          task?.resolve({ decision: made(first, numbersAt(answers, begins, part)), hold: number });
        }
        return begins + lengthOf(part);
      }
      case FAILURE: {
        const failure = this.#failure(number);
        task?.reject(failure);
        return at + 3;
      }
      case ATTEMPTS: {
        const attempts = this.#channel.attempts(number);
        task?.resolve({ attempts });
        return at + 3;
      }
      default:
        task?.resolve({});
        return at + 2;
    }
  }

  #failure(number: number): TidegateError {
    return thrown(this.#channel.failure(number) ?? { code: 'store_rejected', message: 'an error was lost' });
  }

  /** Gives up all tasks; resolves when everything that was asked is answered. */
  async close(): Promise<void> {
    this.flush();
    this.#channel.close();
    this.#collect();
    for (const [ticket, task] of this.#tasks) {
      this.#tasks.delete(ticket);
      this.#channel.cancel(ticket);
      this.#down();
      task.ended();
      task.reject(new ClosedError('the limiter was closed'));
    }
    if (this.#inFlight > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  #tellIdle(): void {
    if (this.#inFlight > 0) return;
    const idle = this.#idle;
    this.#idle = [];
    for (const tell of idle) tell();
  }
}

/**
 * How a transport is opened: the native side reads and writes these arrays, and calls when more answers are there; with their
 * number when they stand in the array already.
 */
export interface TransportOptions {
  open: (
    asks: Float64Array,
    text: Uint16Array,
    answers: Float64Array,
    bell: (count?: number) => void,
  ) => native.NativeLimiter;
}

// One function for all pipes: a closure for every tick would cost more than the call.
function flushed(transport: Transport): void {
  transport.flush();
}

function made(entry: Entry, numbers: Numbers): Decision {
  return new Decision(entry.policyRef, entry.key, entry.cost, numbers);
}

/** There was nothing to do, as when a check is settled for what it has consumed. Nobody sees this one. */
function nothing(policyRef: PolicyRef, key: string, cost: number): Decision {
  return new Decision(policyRef, key, cost, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}
