// Calls that may take some time and can be cancelled: `checkAll`, `acquire`, `hold` and calls that change a key.

import { AnswerField, AnswerKind, Header, TaskKind } from '../binding/index.js';
import { type Attempt, attemptFrom } from './attempt.js';
import { type CancelSignal, onAbort } from './cancel-signal.js';
import type { Units } from './cost.js';
import { Decision } from './decision.js';
import { type DecisionNumbers, lengthOf, numbersAt } from './decision-numbers.js';
import { ClosedError } from './errors.js';
import { release, retain } from './keep-alive.js';
import { type binding, native, takeError } from './native.js';
import type { PolicyRef } from './policy.js';

/** The policy, the key and the cost of a call. */
export interface CallTarget {
  readonly policyRef: PolicyRef;
  readonly key: string;
  /** The cost for limits without a unit. */
  readonly cost: number;
  /** Numbers by the names of units. */
  readonly units?: Units | undefined;
  /** Its class, one of the policy's `priorities`. */
  readonly priority?: string | undefined;
  /** The metadata for the journal. */
  readonly meta?: Uint8Array | undefined;
}

/** A question to the store: a hold, or one check of all policies of a request that hold nothing. */
export interface AskedStep {
  readonly isHold: boolean;
  /** Its begin and end, counted from the begin of the first step. */
  readonly beganMs: number;
  readonly endedMs: number;
  readonly decision: Decision;
}

/** The answer to the limits of a request. */
export interface AdmissionAnswer {
  /** The denial of a refused request. An admitted one has a Decision of all policies, in the order in which they were asked. */
  readonly decision: Decision;
  /** The place of the policy that refused, or undefined for an admitted request. */
  readonly refusedBy: number | undefined;
  /** True if a call that goes out is not refused yet, because it can wait and ask again. */
  readonly waits: boolean;
  /** The number of each hold, and the place of its policy. */
  readonly holds: readonly (readonly [place: number, number: number])[];
  /** The steps, if they were to be recorded. */
  readonly steps: readonly AskedStep[];
}

/** The result of a task. */
export interface TaskResult {
  readonly decision?: Decision;
  readonly admission?: AdmissionAnswer;
  /** The number of a hold. */
  readonly hold?: number;
  readonly attempts?: binding.Attempt[];
  readonly overrides?: binding.OverriddenKey[];
  /** The wait of a refused job. */
  readonly waitMs?: number;
}

interface PendingTask {
  readonly resolve: (result: TaskResult) => void;
  readonly reject: (error: unknown) => void;
  readonly targets: readonly CallTarget[];
  /** Cleans up after the wait. Undefined for a task that is answered at once. */
  endWait?: () => void;
}

/** The part of the transport that tasks use. */
export interface AnswerReader {
  /** Sends the calls that wait for their batch. */
  flush(): void;
  /** Reads the answers that were delivered. */
  collect(): void;
  /** Reads that many numbers from the answers. */
  read(count: number): void;
}

/** The tasks of a limiter that are not done. */
export class Tasks {
  readonly #pending = new Map<number, PendingTask>();
  /** The number of tasks that wait for their answer. */
  #waiting = 0;
  /** No ticket is used twice, because a cancelled task may still be answered. */
  #nextTicket = native.FIRST_TASK_TICKET;

  constructor(
    private readonly nativeLimiter: binding.NativeLimiter,
    private readonly reader: AnswerReader,
  ) {}

  /** Begins a task. `start` takes its ticket, and returns the number of array elements that are answered at once. */
  begin(targets: readonly CallTarget[], start: (ticket: number) => number, signal?: CancelSignal): Promise<TaskResult> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    this.reader.flush();
    const ticket = this.#nextTicket++;
    return new Promise((resolve, reject) => {
      const answers = start(ticket);
      const task: PendingTask = { resolve, reject, targets };
      this.#pending.set(ticket, task);
      if (answers === 0) this.#wait(ticket, task, signal);
      else this.reader.read(answers);
    });
  }

  /** Keeps the process alive until a task is answered or cancelled. */
  #wait(ticket: number, task: PendingTask, signal: CancelSignal | undefined): void {
    const abort = (): void => {
      // A task that is answered by now is not cancelled.
      this.reader.collect();
      if (this.#remove(ticket) !== undefined) task.reject(signal?.reason);
    };
    const forget = signal && onAbort(signal, abort);
    if (this.#waiting++ === 0) retain(this);
    task.endWait = () => {
      forget?.();
      if (--this.#waiting === 0) release(this);
      this.nativeLimiter.cancel(ticket);
    };
  }

  /** Checks several targets, all or nothing. */
  async checkAll(targets: readonly CallTarget[]): Promise<Decision> {
    const { decision } = await this.begin(targets, (ticket) => this.nativeLimiter.checkAll(ticket, entriesOf(targets)));
    return decision as Decision;
  }

  /** Asks the policies of a request. It holds units of `concurrency` policies and checks all others. One refusal takes everything back. */
  async admit(targets: readonly CallTarget[], recordsSteps: boolean): Promise<AdmissionAnswer> {
    const { admission } = await this.begin(targets, (ticket) =>
      this.nativeLimiter.admit(ticket, entriesOf(targets), recordsSteps),
    );
    return admission as AdmissionAnswer;
  }

  /**
   * Waits for the turn of a call that goes out. The second target, if there is one, is its service. A call that `waits` waits
   * for as long as the Decision says and asks again. With `announces` it hears of every wait before it begins.
   */
  async turn(
    targets: readonly CallTarget[],
    timeoutMs: number | undefined,
    announces: boolean,
    signal: CancelSignal | undefined,
  ): Promise<AdmissionAnswer> {
    const start = (ticket: number): number =>
      this.nativeLimiter.turn(ticket, entriesOf(targets), finite(timeoutMs), announces);
    const { admission } = await this.begin(targets, start, signal);
    return admission as AdmissionAnswer;
  }

  /** True if the service refuses such calls since `at`, a time of the store. */
  async isRefusedSince(targets: readonly CallTarget[], at: number): Promise<boolean> {
    const { decision } = await this.begin(targets, (ticket) =>
      this.nativeLimiter.refusedSince(ticket, entriesOf(targets), at),
    );
    return decision !== undefined;
  }

  /** Learns the limits in the response to a call whose Decision had these numbers. */
  async learn(targets: readonly CallTarget[], said: binding.Observation[], numbers: number[]): Promise<void> {
    await this.begin(targets, (ticket) => this.nativeLimiter.learn(ticket, entriesOf(targets), said, numbers));
  }

  /** Returns a ticket for a task that the transport begins. */
  takeTicket(): number {
    return this.#nextTicket++;
  }

  /** Waits for the Decision of such a task. */
  async decisionOf(ticket: number, targets: readonly CallTarget[]): Promise<Decision> {
    const { decision } = await new Promise<TaskResult>((resolve, reject) => {
      const task: PendingTask = { resolve, reject, targets };
      this.#pending.set(ticket, task);
      this.#wait(ticket, task, undefined);
    });
    return decision as Decision;
  }

  /** Begins a task about one key. `lengthMs` is the time to wait or to block. Without it there is no end. */
  about(kind: TaskKind, target: CallTarget, signal?: CancelSignal, lengthMs?: number): Promise<TaskResult> {
    const { policyRef, key, cost, meta, units, priority } = target;
    const length = kind === TaskKind.Block ? lengthMs : finite(lengthMs);
    const start = (ticket: number): number =>
      this.nativeLimiter.beginTask(ticket, kind, policyRef.id, key, cost, length, meta, units, priority);
    return this.begin([target], start, signal);
  }

  /** Returns the newest attempts. */
  async journal(target: CallTarget): Promise<readonly Attempt[]> {
    const { attempts } = await this.about(TaskKind.Journal, target);
    return (attempts ?? []).map(attemptFrom);
  }

  /** Returns the time until a refused job asks again. */
  async jobWait(policyId: number, denial: Decision, cameBack: boolean, usualLengthMs?: number): Promise<number> {
    const { waitMs } = await this.begin([], (ticket) =>
      this.nativeLimiter.jobWait(ticket, policyId, denial as unknown as binding.Denial, cameBack, usualLengthMs),
    );
    return waitMs as number;
  }

  #remove(ticket: number): PendingTask | undefined {
    const task = this.#pending.get(ticket);
    if (task === undefined) return undefined;
    this.#pending.delete(ticket);
    task.endWait?.();
    return task;
  }

  /** Reads the answer of a task that begins at the index `at`. Returns the index of the next answer. */
  read(answers: Float64Array, at: number, ticket: number): number {
    // This is undefined if the task was cancelled.
    const task = this.#remove(ticket);
    const start = at + AnswerField.Header;
    const header = answers[start] as number;
    const value = answers[at + AnswerField.Value] as number;
    const target = task?.targets[0];
    const { resolve, reject } = task ?? CANCELLED;
    switch (header & Header.KindMask) {
      case AnswerKind.Decision:
        if (target !== undefined) resolve({ decision: decisionOf(target, numbersAt(answers, start, header)) });
        return start + lengthOf(header);
      case AnswerKind.Group: {
        const { decision, end } = readGroup(answers, at, task?.targets);
        if (decision !== undefined) resolve({ decision });
        return end;
      }
      case AnswerKind.Admission: {
        const { admission, end } = readAdmission(answers, at, task?.targets ?? []);
        for (const [, number] of admission.holds) {
          // If the caller has cancelled, its holds are given back.
          if (task === undefined) this.nativeLimiter.discard(number);
          else this.nativeLimiter.keep(number);
        }
        resolve({ admission });
        return end;
      }
      case AnswerKind.Hold: {
        // The record of its Decision follows.
        const decisionAt = at + AnswerField.Value + 1 + AnswerField.Header;
        const decisionHeader = answers[decisionAt] as number;
        if (target === undefined) {
          // The caller cancelled. The hold is given back.
          this.nativeLimiter.discard(value);
        } else {
          this.nativeLimiter.keep(value);
          const numbers = numbersAt(answers, decisionAt, decisionHeader);
          resolve({ decision: decisionOf(target, numbers), hold: value });
        }
        return decisionAt + lengthOf(decisionHeader);
      }
      case AnswerKind.Error:
        // The error is taken out of the native side even if the caller has cancelled.
        reject(takeError(this.nativeLimiter, value));
        return at + AnswerField.Value + 1;
      case AnswerKind.Overrides:
        resolve({ overrides: this.nativeLimiter.overriddenKeys(value) });
        return at + AnswerField.Value + 1;
      case AnswerKind.Wait:
        resolve({ waitMs: value / 1_000 });
        return at + AnswerField.Value + 1;
      case AnswerKind.Attempts:
        resolve({ attempts: this.nativeLimiter.attempts(value) });
        return at + AnswerField.Value + 1;
      default:
        resolve({});
        return start + 1;
    }
  }

  /** Cancels all tasks, because the limiter is being closed. */
  cancelAll(): void {
    for (const ticket of this.#pending.keys()) this.#remove(ticket)?.reject(new ClosedError('the limiter was closed'));
  }
}

/** The answer, and the index of the next one. There is no Decision for a caller that has cancelled. */
type ReadDecision = { readonly decision: Decision | undefined; readonly end: number };
type ReadAdmission = { readonly admission: AdmissionAnswer; readonly end: number };

/** Reads the Decision of `checkAll` at the index `at`. */
export function readGroup(answers: Float64Array, at: number, targets: readonly CallTarget[] | undefined): ReadDecision {
  const count = (answers[at + AnswerField.Header] as number) >> Header.CountShift;
  const copied = answers[at + AnswerField.Value] as number;
  const decisions: Decision[] = [];
  let end = at + AnswerField.Value + 1;
  for (let index = 0; index < count; index++) {
    const start = end + AnswerField.Header;
    const header = answers[start] as number;
    const target = targets?.[index];
    if (target !== undefined) decisions.push(decisionOf(target, numbersAt(answers, start, header)));
    end = start + lengthOf(header);
  }
  return { decision: decisions[copied]?.withParts(decisions), end };
}

/** Reads the Decision at the index `at`, of one target or of several. */
function readDecision(answers: Float64Array, at: number, targets: readonly CallTarget[]): ReadDecision {
  const start = at + AnswerField.Header;
  const header = answers[start] as number;
  if ((header & Header.KindMask) === AnswerKind.Group) return readGroup(answers, at, targets);
  const [target] = targets;
  const decision = target && decisionOf(target, numbersAt(answers, start, header));
  return { decision, end: start + lengthOf(header) };
}

/** Reads the answer to the limits of a request: see `AnswerKind.Admission`. */
function readAdmission(answers: Float64Array, at: number, targets: readonly CallTarget[]): ReadAdmission {
  const read = (place: number): number => answers[place] as number;
  const count = read(at + AnswerField.Header) >> Header.CountShift;
  const refused = read(at + AnswerField.Value);
  const refusedBy = refused === 0 ? undefined : refused - 1;
  const waits = read(at + AnswerField.Value + 1) === 1;
  let next = at + AnswerField.Value + 2;
  const holds: [number, number][] = [];
  for (; holds.length < count; next += 2) holds.push([read(next), read(next + 1)]);
  const checked = targets.filter(({ policyRef }) => !policyRef.holds);
  const held = targets.filter(({ policyRef }) => policyRef.holds);
  let heldSteps = 0;
  const steps: AskedStep[] = [];
  const stepCount = read(next++);
  for (let step = 0; step < stepCount; step++) {
    const [isHold, beganMs, endedMs] = [read(next) === 1, read(next + 1) / 1000, read(next + 2) / 1000];
    const { decision, end } = readDecision(answers, next + 3, isHold ? held.slice(heldSteps++, heldSteps) : checked);
    if (decision !== undefined) steps.push({ isHold, beganMs, endedMs, decision });
    next = end;
  }
  const isGroup = (read(next + AnswerField.Header) & Header.KindMask) === AnswerKind.Group;
  const asked = refusedBy === undefined ? targets : isGroup ? checked : targets.slice(refusedBy);
  const { decision, end } = readDecision(answers, next, asked);
  return { admission: { decision: decision as Decision, refusedBy, waits, holds, steps }, end };
}

/** A wait of a hundred years is as good as endless, and a store cannot add much more to its clock. */
const LONGEST_WAIT = 100 * 366 * 86_400_000;

/** Returns the time to wait, or undefined for an endless wait. */
function finite(timeoutMs: number | undefined): number | undefined {
  return typeof timeoutMs === 'number' && timeoutMs > LONGEST_WAIT ? undefined : timeoutMs;
}

/** Returns targets in the form that crosses. */
function entriesOf(targets: readonly CallTarget[]): binding.CallEntries {
  return {
    policies: targets.map(({ policyRef }) => policyRef.id),
    keys: targets.map(({ key }) => key),
    costs: targets.map(({ cost }) => cost),
    metas: targets.map(({ meta }) => meta),
    units: targets.map(({ units }) => units),
    priorities: targets.map(({ priority }) => priority),
  };
}

/** Stands for a caller that cancelled. */
const CANCELLED: Pick<PendingTask, 'resolve' | 'reject'> = { resolve: () => {}, reject: () => {} };

function decisionOf({ policyRef, key, cost }: CallTarget, numbers: DecisionNumbers): Decision {
  return new Decision(policyRef, key, cost, numbers);
}
