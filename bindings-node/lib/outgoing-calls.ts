// The way of a request through any client: it waits for its turn, is sent, observed and settled, and perhaps sent again.

import { checkClass } from './call-options.js';
import type { CancelSignal } from './cancel-signal.js';
import { type Cost, countedBy, isByPolicy, isUnits, nothingOf } from './cost.js';
import { Decision, policyRefOf } from './decision.js';
import { delay } from './delay.js';
import { ClosedError, ConfigError, CostError, describe, StoreError } from './errors.js';
import type { Hold } from './hold.js';
import { warnOfMemory } from './http/processes.js';
import { MEDIA_TYPE, problem, retryAfter, status } from './http/refusal.js';
import { kept } from './kept.js';
import { checkCostIn, isLocal, type Limiter, policyRefIn, usePolicyIn } from './limiter.js';
import { neverFits } from './never-fits.js';
import type { SettleReader } from './outgoing.js';
import {
  checkedPacing,
  type OutgoingRequest,
  type OutgoingResponse,
  type PacedOptions,
  type Pacing,
} from './paced-options.js';
import { learnedPolicy, type Policy, type PolicyLike, type PolicyRef } from './policy.js';
import { refuseQueues } from './queueing-policies.js';
import { RateLimited } from './rate-limited.js';
import { mayTell, type Observation, type ResponseHeaders, readResponse } from './response-reading.js';
import { emitWarning } from './store-changes.js';
import { asked, spansOf, unwrapped } from './tracing.js';
import {
  acquireIn,
  isRefusedSince,
  learnIn,
  mayBeRefusedSince,
  type OutgoingCall,
  type TurnAnswer,
  turnIn,
} from './turns.js';
import { isUnsent } from './unsent.js';
import { madeCost, madeKey, madePriority } from './wrap.js';

/** A request on its way through a client. */
export interface Exchange<A extends Answer> {
  /** `scheme://host[:port]`. Undefined if the client does not name it. */
  readonly origin: string | undefined;
  /** In upper case. */
  readonly method: string;
  /** Cancels it. */
  readonly signal: CancelSignal | undefined;
  /** True if its body can be sent again. */
  readonly isRepeatable: boolean;
  /** True if anything of it may have been sent. Undefined if only the error can show that. */
  readonly hasBegun?: boolean;
  /** The call that was redirected to this request. */
  readonly redirectedFrom?: MadeFor | undefined;
  headers(): { has(name: string): boolean };
  describe(): OutgoingRequest | Promise<OutgoingRequest>;
  /** Sends it as it is. */
  send(): Promise<A>;
  /** An answer that no server gave. */
  made(response: MadeResponse): A;
}

/** The answer of a server. Nothing of its body was handed on. */
export interface Answer {
  readonly status: number;
  readonly headers: ResponseHeaders;
  header(name: string): string | null | undefined;
  /** The head, as `settle` sees it. */
  head(): OutgoingResponse;
  /** Returns the body, unless it is longer than `most`, breaks off or is late. The caller can still read it. */
  read(most: number, late: AbortSignal): Promise<Uint8Array | undefined>;
  /** Gives up the body. */
  close(): void;
}

/** The origin of a call, and its key. */
export interface MadeFor {
  readonly origin: string | undefined;
  readonly key: string;
}

/** A response in the place of a request that may not be sent. */
export interface MadeResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** An answer, and the turn that the client ends when the body has ended. */
export interface Answered<A extends Answer> {
  readonly answer: A;
  readonly turn: Turn;
}

const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);
/** The most bytes of a refusal's body that are read, and the longest time for that. */
const MAX_BODY = 65_536;
const MAX_BODY_MS = 1_000;
/** The fields of a refusal. The last one keeps SDKs of LLMs from a retry. */
const REFUSED = { 'cache-control': 'no-store', 'content-type': MEDIA_TYPE, 'x-should-retry': 'false' };

/** The place of the service among those that may refuse a call. */
const SERVICE = 1;
const NOTHING: ReadonlySet<string> = new Set();

/** The calls of one client. */
export class OutgoingCalls {
  readonly #where: string;
  readonly #options: Pacing;
  readonly #limiter: Limiter;
  /** True if a function among the options takes requests. */
  readonly #describes: boolean;
  /** True if a call needs nothing but an admission from memory for its origin. */
  readonly #isPlain: boolean;
  /** The paced policies, by the policies that they replace. */
  readonly #pacedPolicies = new WeakMap<PolicyRef, Policy>();

  /** `more` are the options that the client alone has. */
  constructor(options: PacedOptions, where: string, more?: readonly string[]) {
    this.#where = where;
    this.#options = checkedPacing(options, where, more);
    this.#limiter = unwrapped(options.limiter);
    warnOfMemory(this.#limiter);
    const { policy, key, cost, priority, settle, onWait } = this.#options;
    const isAlone = key === undefined && priority === undefined && onWait === undefined;
    this.#isPlain = isAlone && typeof policy !== 'function' && typeof cost === 'number' && isLocal(this.#limiter);
    this.#describes = [policy, key, cost, priority, settle].some((option) => typeof option === 'function');
    if (policy === undefined && !this.#options.learn) {
      throw new ConfigError(
        `${where}: without a policy and with learn: false nothing is limited: give a policy, or leave learn out`,
      );
    }
    if (policy === undefined || typeof policy === 'function') return;
    const ref = policyRefIn(this.#limiter, policy);
    this.#paced(policy);
    if (typeof cost !== 'function') checkCostIn(this.#limiter, ref, cost);
    // Check this early, because clients of models hide the error of a call.
    else if (isByPolicy(cost)) checkCostIn(this.#limiter, ref, cost.nothingOf(countedBy(ref)));
    if (typeof priority === 'string') checkClass(priority, [ref], where);
  }

  /** Registers a user of the policy. While it lives, `reload` does not drop the policy. */
  usedBy(user: object): void {
    const { policy } = this.#options;
    if (policy !== undefined && typeof policy !== 'function') usePolicyIn(this.#limiter, policy, this.#where, user);
  }

  /** Sends a request in its turn. The client ends the returned turn when the body of the answer ends. */
  async send<A extends Answer>(exchange: Exchange<A>): Promise<Answered<A>> {
    const waits = new Waits(this.#options.timeoutMs);
    for (let retries = 0; ; retries++) {
      const request = this.#describes ? await exchange.describe() : undefined;
      const turn = this.#turnAtOnce(exchange) ?? (await this.#turn(exchange, request as OutgoingRequest, waits));
      if (!(turn instanceof Turn)) return { answer: exchange.made(turn), turn: new Turn(this.#limiter, this.#where) };
      let answer: A | undefined;
      try {
        answer = await exchange.send();
        turn.settleWith(this.#options.settle?.(answer.head(), request as OutgoingRequest));
        const waitMs = this.#saysNothing(turn, answer) ? undefined : await this.#observe(turn, answer);
        const isAgain = retries < this.#options.retries && waitMs !== undefined && mayRepeat(exchange);
        if (!isAgain || waitMs > waits.leftMs) return { answer, turn };
        answer.close();
        turn.end();
        // Callers that were refused at the same moment come back at different ones.
        const pauseMs = Math.min(waitMs * (1 + Math.random() / 10), waits.leftMs);
        await waits.during(delay(pauseMs, exchange.signal));
      } catch (error) {
        answer?.close();
        if (answer === undefined && (exchange.hasBegun === false || isUnsent(error))) await turn.giveBack();
        else turn.end();
        throw error;
      }
    }
  }

  /** Returns the turn of a request that memory admits at once. It makes no promise, because nothing waits. */
  #turnAtOnce<A extends Answer>(exchange: Exchange<A>): Turn | undefined {
    const { policy: given, cost, prefix } = this.#options;
    if (!this.#isPlain || exchange.signal?.aborted || asked(this.#limiter) !== this.#limiter) return undefined;
    const policy = this.#paced(given as PolicyLike | undefined);
    const ref = policyRefIn(this.#limiter, policy);
    if (ref.holds) return undefined;
    const key = `${prefix}${this.#origin(exchange)}`;
    const decision = acquireIn(this.#limiter, ref, key, cost as number);
    if (decision instanceof Decision) {
      const call = {
        policy,
        key,
        origin: undefined,
        cost: cost as number,
        priority: undefined,
        decision,
        hold: undefined,
      };
      return decision.allowed ? new Turn(this.#limiter, this.#where, call) : undefined;
    }
    // If it fails, `#turn` fails in the same way and throws the error.
    decision?.catch(() => {});
    return undefined;
  }

  /** Waits for the turn of a request. */
  async #turn<A extends Answer>(
    exchange: Exchange<A>,
    request: OutgoingRequest,
    waits: Waits,
  ): Promise<Turn | MadeResponse> {
    const { policy: policyOption, key: keyOption, cost: costOption, priority: priorityOption } = this.#options;
    const given = typeof policyOption === 'function' ? policyOption(request) : policyOption;
    if (given === undefined && !this.#options.learn) return new Turn(this.#limiter, this.#where);
    const policy = this.#paced(given);
    let key = `${this.#options.prefix}${typeof keyOption === 'function' ? madeKey(this.#where, keyOption(request)) : (keyOption ?? this.#origin(exchange))}`;
    if (isByPolicy(costOption))
      costOption.counts(request, given === undefined ? NOTHING : countedBy(policyRefIn(this.#limiter, given)));
    const cost = typeof costOption === 'function' ? madeCost(this.#where, costOption(request)) : costOption;
    const priority =
      typeof priorityOption === 'function' ? madePriority(this.#where, priorityOption(request)) : priorityOption;
    let origin =
      keyOption === undefined || exchange.origin === undefined
        ? undefined
        : `${this.#options.prefix}${exchange.origin}`;
    const from = exchange.redirectedFrom;
    if (from?.key === key && origin !== undefined && exchange.origin !== from.origin) {
      // The key is that of the origin that redirected the call.
      key = origin;
      origin = undefined;
    }
    const call = { policy, key, origin, cost, priority };
    const turn = await this.#admitted(call, exchange.signal, waits);
    // A busy event loop comes late to a turn. The second turn counts, because the first may have been refused for its own
    // charge.
    if (!(turn instanceof Turn && turn.mayBeOver && (await this.#isOver(turn)))) return turn;
    return this.#admitted(call, exchange.signal, waits);
  }

  /** Waits until the limits of a call admit it. */
  async #admitted(call: OutgoingCall, signal: CancelSignal | undefined, waits: Waits): Promise<Turn | MadeResponse> {
    const { onWait } = this.#options;
    const [limiter, spans] = [this.#limiter, spansOf(this.#limiter)];
    for (let announces = onWait !== undefined; ; ) {
      const began = Date.now();
      let answer: TurnAnswer;
      try {
        answer = await waits.during(turnIn(limiter, call, waits.leftMs, announces, signal));
      } catch (error) {
        spans?.failed(began, error, [call.policy]);
        throw error;
      }
      const { decision, refusedBy, hold } = answer;
      if (!answer.waits) {
        spans?.turned(began, decision);
        if (refusedBy !== undefined) return this.#refuse(decision);
        return new Turn(limiter, this.#where, { ...call, decision, hold });
      }
      const waitMs = decision.retryAfterMs ?? 0;
      onWait?.(decision, waitMs);
      if (refusedBy === SERVICE) await waits.during(delay(waitMs, signal));
      else announces = false;
    }
  }

  /** True if the service refuses calls since the turn was given. The turn is then given back. */
  async #isOver(turn: Turn): Promise<boolean> {
    let isOver = true;
    try {
      isOver = await turn.isOver();
    } finally {
      if (isOver) await turn.giveBack();
    }
    return isOver;
  }

  /** Returns the policy with the margin of outgoing calls. */
  #paced(policy: PolicyLike | undefined): Policy {
    if (policy === undefined) return learnedPolicy();
    const ref = policyRefIn(this.#limiter, policy);
    return kept(this.#pacedPolicies, ref, () => {
      const resolved = this.#limiter.policy(ref.given);
      refuseQueues(resolved, ref.name, 'a request waits here for its turn');
      return resolved.paced(this.#options.marginMs);
    });
  }

  #origin<A extends Answer>({ origin }: Exchange<A>): string {
    if (origin !== undefined) return origin;
    throw new ConfigError(`${this.#where}: the request names no origin: give one with it, or the option key`);
  }

  /** Throws an error, or returns the response in its place. */
  #refuse(decision: Decision): MadeResponse {
    const misfit = neverFits(decision);
    if (!this.#options.respond) throw misfit ?? new RateLimited(decision);
    if (misfit !== undefined) {
      const detail = { type: 'about:blank', title: 'Content Too Large', status: 413, detail: misfit.message };
      return { status: 413, headers: REFUSED, body: withMessage(detail) };
    }
    const wait = retryAfter(decision);
    const headers = wait === null ? REFUSED : { ...REFUSED, 'retry-after': String(wait) };
    return { status: status(decision), headers, body: withMessage(JSON.parse(problem(decision))) };
  }

  /** True if there is nothing to learn from a response. */
  #saysNothing<A extends Answer>(turn: Turn, { status, headers }: A): boolean {
    const { learn, retries } = this.#options;
    if (!learn && retries === 0) return true;
    // If a service states no limit, the next call goes once Tidegate knows that this one was served.
    return status < 400 && !(learn && turn.asksLearned) && !mayTell(headers);
  }

  /** Learns the limits that a response announces. Returns the wait before a retry. */
  async #observe<A extends Answer>(turn: Turn, answer: A): Promise<number | undefined> {
    const { learn, maxLearnedWaitMs } = this.#options;
    const read = (body?: Uint8Array) => readResponse(answer.headers, Date.now(), answer.status, body, maxLearnedWaitMs);
    let said = read();
    if (said.needsBody) said = read(await readInTime(answer));
    const observations = said.observations as Observation[];
    if (learn && (observations.length > 0 || turn.asksLearned)) await turn.learn(observations);
    return said.retryWaitMs;
  }
}

/** Returns the body of a refusal if it comes in time. */
async function readInTime(answer: Answer): Promise<Uint8Array | undefined> {
  const late = new AbortController();
  delay(MAX_BODY_MS, late.signal).then(
    () => late.abort(),
    () => {},
  );
  try {
    return await answer.read(MAX_BODY, late.signal);
  } finally {
    late.abort();
  }
}

/** How long a request may still wait. */
class Waits {
  constructor(public leftMs: number) {}

  async during<T>(wait: Promise<T>): Promise<T> {
    const began = performance.now();
    try {
      return await wait;
    } finally {
      this.leftMs = Math.max(0, this.leftMs - (performance.now() - began));
    }
  }
}

/** A call that the limiter has admitted. */
interface AdmittedCall extends OutgoingCall {
  readonly decision: Decision;
  readonly hold: Hold | undefined;
}

/** The turn of a request: its charge, and its hold until the body of the answer has ended. */
export class Turn {
  #settle: Cost | SettleReader | undefined;
  #hasEnded = false;

  constructor(
    private readonly limiter: Limiter,
    private readonly where: string,
    private readonly call?: AdmittedCall,
  ) {}

  /** True if anything is to be done when the body has ended. */
  get isOpen(): boolean {
    return !this.#hasEnded && (this.call?.hold !== undefined || this.#settle !== undefined);
  }

  /** The key of the call, or undefined if the limiter was not asked. */
  get key(): string | undefined {
    return this.call?.key;
  }

  /** Sets the actual cost of the call, or the reader that finds it in the body. */
  settleWith(settle: Cost | SettleReader | null | undefined): void {
    if (settle === undefined || settle === null) return;
    if (typeof settle !== 'number' && !isReader(settle) && !isUnits(settle)) {
      throw new CostError(
        `${this.where}: settle returned ${describe(settle)}: it must return a whole number, an object of such numbers by the names of units, an object with feed and end, or undefined`,
      );
    }
    this.#settle = settle;
  }

  /** True if only limits learned from responses apply to it. */
  get asksLearned(): boolean {
    return this.call?.policy === learnedPolicy() && this.call.decision.learned;
  }

  /** True if the service may refuse such calls since the turn was given. */
  get mayBeOver(): boolean {
    return this.call !== undefined && mayBeRefusedSince(this.limiter, this.call, this.call.decision);
  }

  /** True if the service does refuse them. */
  async isOver(): Promise<boolean> {
    return this.call !== undefined && isRefusedSince(this.limiter, this.call, this.call.decision);
  }

  /** Stores the limits that the answer announces, for every process. */
  async learn(said: readonly Observation[]): Promise<void> {
    if (this.call === undefined) return;
    try {
      await learnIn(this.limiter, this.call, said, this.call.decision);
    } catch (error) {
      // The answer is there all the same, and the limiter may be closed by now.
      if (!isOfStore(error)) throw error;
    }
  }

  /** Takes a chunk of the body that the caller gets. */
  feed(chunk: Uint8Array): void {
    if (isReader(this.#settle)) this.#settle.feed(chunk);
  }

  /** Ends the turn, because the body has ended or was given up. */
  end(): void {
    const isOpen = this.isOpen;
    this.#hasEnded = true;
    // Nothing waits for this, and a store that fails is no error of the request.
    if (isOpen) void this.#done(() => (isReader(this.#settle) ? this.#settle.end() : this.#settle));
  }

  /** Gives the whole charge back, because nothing was sent. */
  async giveBack(): Promise<void> {
    this.#hasEnded = true;
    await this.#done((decision) => nothingOf(policyRefOf(decision)));
  }

  async #done(actual: (decision: Decision) => Cost | undefined): Promise<void> {
    const { decision, hold } = this.call ?? {};
    const released = hold?.release();
    try {
      const cost = decision && actual(decision);
      if (decision !== undefined && cost !== undefined && cost !== null)
        await asked(this.limiter).settle(decision, cost);
      await released;
    } catch (error) {
      if (isOfStore(error)) return;
      emitWarning(`${this.where}: a call was not settled: ${error instanceof Error ? error.message : describe(error)}`);
    }
  }
}

function isOfStore(error: unknown): boolean {
  return error instanceof StoreError || error instanceof ClosedError;
}

function isReader(settle: unknown): settle is SettleReader {
  const { feed, end } = (settle ?? {}) as Partial<SettleReader>;
  return typeof feed === 'function' && typeof end === 'function';
}

function mayRepeat<A extends Answer>(exchange: Exchange<A>): boolean {
  const isIdempotent = IDEMPOTENT.has(exchange.method) || exchange.headers().has('idempotency-key');
  return isIdempotent && exchange.isRepeatable;
}

const SENT_AGAIN = ['URLSearchParams', 'FormData', 'Blob', 'File', 'ArrayBuffer', 'SharedArrayBuffer'];

/** True if a body can be sent again: bytes, text and forms can, a stream cannot. */
export function isRepeatable(body: unknown): boolean {
  if (typeof body !== 'object' || body === null || ArrayBuffer.isView(body)) return typeof body !== 'function';
  return SENT_AGAIN.includes(Object.prototype.toString.call(body).slice(8, -1));
}

/** A problem as a body. Clients of models show the message of an error, and no detail. */
function withMessage(problem: { readonly detail: string }): string {
  return JSON.stringify({ ...problem, error: { message: problem.detail } });
}
