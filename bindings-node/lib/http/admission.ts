// The half of every adapter that knows no framework: a request is asked about, and what came of it is told, settled and
// given back when its response is over.

import process from 'node:process';

import { Decision } from '../decision.js';
import { ConfigError, CostError, StoreError } from '../errors.js';
import { Hold } from '../hold.js';
import { checkIn, type Limiter, policyRefIn } from '../limiter.js';
import type { PolicyLike } from '../policy.js';
import { RateLimited } from '../rate-limited.js';
import { announce, leading, type SetField } from './fields.js';
import { type Awaitable, keysOf } from './keys.js';
import { type Entry, type PlainEntry, type RateLimitOptions, Settings } from './rate-limit-options.js';
import { problem, retryAfter, status } from './refusal.js';
import type { RequestAdapter } from './request-adapter.js';

/** Where a request remembers what was asked about it. The same for all copies of this module. */
const ASKED = Symbol.for('tidegate.asked');

interface Remembers<Request extends object, Response> {
  [ASKED]?: Admission<Request, Response>;
}

function memoryOf<Request extends object, Response>(
  adapter: RequestAdapter<Request>,
  request: Request,
): Remembers<Request, Response> {
  return adapter.memory === undefined ? request : adapter.memory(request);
}

/** What stands before a handler: it asks about requests. */
export class RequestLimiter<Request extends object, Response> {
  readonly settings: Settings<Request, Response>;

  constructor(
    readonly adapter: RequestAdapter<Request>,
    options: RateLimitOptions<Request, Response>,
    place?: string,
  ) {
    this.settings = new Settings(options, adapter, () => keysOf(adapter).clientIp(), place);
  }

  /**
   * What comes of a request; nothing when it is none that is limited. It is no promise where all that it takes is at hand:
   * what is wrong is thrown then.
   */
  ask(request: Request): Awaitable<Admission<Request, Response> | undefined> {
    const { settings, adapter } = this;
    if (settings.methods !== undefined && !settings.methods.has(adapter.method(request))) return undefined;
    const { only } = settings;
    if (only === undefined) return this.#ask(request);
    const key = only.key(request);
    const admission = this.#admission(request);
    return typeof key === 'string' ? admission.askOne(only, key) : key.then((key) => admission.askOne(only, key));
  }

  async #ask(request: Request): Promise<Admission<Request, Response> | undefined> {
    const { settings } = this;
    const { skip } = settings.options;
    if (skip !== undefined && (await skip(request))) return undefined;
    const admission = this.#admission(request);
    await admission.ask(settings.entries ?? (await settings.entriesOf(request)));
    return admission;
  }

  #admission(request: Request): Admission<Request, Response> {
    const memory = memoryOf<Request, Response>(this.adapter, request);
    const admission = new Admission(this, request, memory[ASKED]);
    memory[ASKED] = admission;
    return admission;
  }
}

/** What the last adapter on the way of a request was told about it. */
export function newest<Request extends object, Response>(
  adapter: RequestAdapter<Request>,
  request: Request,
): Admission<Request, Response> | undefined {
  return memoryOf<Request, Response>(adapter, request)[ASKED];
}

/** An empty list for every request. */
const NONE: readonly never[] = Object.freeze([]);

/** A policy that is asked about one request. */
interface Question {
  readonly policy: PolicyLike;
  readonly key: string;
  readonly cost: number;
}

function ask(limiter: Limiter, { policy, key, cost }: Question): Promise<Decision> {
  return cost === 1 ? limiter.check(policy, key) : limiter.check(policy, key, { cost });
}

/** Asks about several policies as about one. */
async function check(limiter: Limiter, questions: readonly Question[]): Promise<Decision | undefined> {
  const [only] = questions;
  if (only === undefined) return undefined;
  if (questions.length === 1) return ask(limiter, only);
  return limiter.checkAll(questions.map(({ policy, key, cost }) => [policy, key, cost]));
}

/** Takes a hold, or says why there is none. */
async function take(limiter: Limiter, { policy, key, cost }: Question): Promise<Hold | Decision> {
  try {
    return await limiter.hold(policy, key, { cost });
  } catch (error) {
    if (error instanceof RateLimited) return error.decision;
    throw error;
  }
}

/** What came of a request. */
export class Admission<Request extends object, Response> {
  /** The answer; of several policies the one that leads. Nothing when the store could not be asked. */
  decision: Decision | undefined;
  readonly requestLimiter: RequestLimiter<Request, Response>;
  readonly request: Request;
  /** What an adapter before this one was told about the same request. */
  readonly before: Admission<Request, Response> | undefined;
  // Not `#private`: one is made for every request, and those would cost more than all else about it.
  private _questions: readonly Question[] = NONE;
  private _decisions: readonly Decision[] = NONE;
  private _holds: readonly Hold[] = NONE;
  private _over = false;

  constructor(
    requestLimiter: RequestLimiter<Request, Response>,
    request: Request,
    before: Admission<Request, Response> | undefined,
  ) {
    this.decision = undefined;
    this.requestLimiter = requestLimiter;
    this.request = request;
    this.before = before;
    for (let earlier = before; earlier !== undefined; earlier = earlier.before) {
      if (earlier.requestLimiter === requestLimiter) throw this.#twice('this middleware');
    }
  }

  /** Asks the usual question: about one policy, nothing of which is held. */
  askOne({ policy, cost }: PlainEntry<Request>, key: string): Awaitable<this> {
    const { limiter } = this.requestLimiter.settings;
    this._questions = [{ policy, key, cost }];
    if (this.before !== undefined) this.#refuseTwice(this.before);
    const policyRef = policyRefIn(limiter, policy);
    if (policyRef.holds) return this.#decideAll();
    try {
      const said = checkIn(limiter, policyRef, key, cost);
      if (said instanceof Decision) return this.#decided(said);
      return said.then(
        (decision) => this.#decided(decision),
        (error) => this.#failed(error),
      );
    } catch (error) {
      return this.#failed(error);
    }
  }

  #decided(decision: Decision): this {
    this.decision = decision;
    this._decisions = [decision];
    return this;
  }

  #failed(error: unknown): this {
    // Without a store and without a policy for that, nobody knows: the answer is 503.
    if (!(error instanceof StoreError)) throw error;
    return this;
  }

  /** Asks; what cannot be had as a whole is not had at all. */
  async ask(entries: readonly Entry<Request>[]): Promise<void> {
    this._questions = await this.#ask(entries);
    if (this.before !== undefined) this.#refuseTwice(this.before);
    await this.#decideAll();
  }

  async #decideAll(): Promise<this> {
    try {
      await this.#decide();
      return this;
    } catch (error) {
      this.#release();
      return this.#failed(error);
    }
  }

  async #ask(entries: readonly Entry<Request>[]): Promise<readonly Question[]> {
    const { request } = this;
    const questions: Question[] = [];
    let asked: Entry<Request>['key'] | undefined;
    let key = '';
    for (const entry of entries) {
      // Several policies about one client ask once who it is.
      if (entry.key !== asked) {
        const named = entry.key(request);
        key = typeof named === 'string' ? named : await named;
        asked = entry.key;
      }
      const cost = typeof entry.cost === 'number' ? entry.cost : await entry.cost(request);
      if (typeof cost !== 'number') {
        throw new CostError(
          `${this.requestLimiter.adapter.name}: the function given as cost returned ${String(cost)}: it must be a whole number`,
        );
      }
      questions.push({ policy: entry.policy, key, cost });
    }
    return questions;
  }

  async #decide(): Promise<void> {
    const { limiter } = this.requestLimiter.settings;
    const held: Question[] = [];
    const rest: Question[] = [];
    for (const question of this._questions) (policyRefIn(limiter, question.policy).holds ? held : rest).push(question);
    const decisions: Decision[] = [];
    // Holds come first: given back, they leave nothing behind.
    for (const question of held) {
      const hold = await take(limiter, question);
      if (!(hold instanceof Hold)) return this.#refused(hold);
      this._holds = [...this._holds, hold];
      decisions.push(hold.decision);
    }
    const decision = await check(limiter, rest);
    if (decision !== undefined) {
      if (!decision.allowed) return this.#refused(decision);
      decisions.push(decision);
    }
    this._decisions = decisions;
    this.decision = leading(decisions);
  }

  #refused(decision: Decision): void {
    this.decision = decision;
    this._decisions = [decision];
    this.#release();
  }

  /** May it go? */
  get admitted(): boolean {
    return this.decision?.allowed === true;
  }

  /** The status of a refusal. */
  get status(): 429 | 503 {
    return status(this.decision);
  }

  /** The body of a refusal, as `application/problem+json`. */
  problem(): string {
    return problem(this.decision);
  }

  /** Writes the fields that announce the limits, of all that were asked for this request. */
  announce<To>(put: SetField<To>, to: To): void {
    let said = this._decisions;
    for (let { before } = this; before !== undefined; before = before.before) {
      if (before.requestLimiter.settings.headers !== 'off') said = [...before._decisions, ...said];
    }
    announce(
      said,
      this.requestLimiter.settings.headers,
      this.admitted ? undefined : retryAfter(this.decision),
      put,
      to,
    );
  }

  /** How long an admitted request is to wait before it goes: the queue of a leaky bucket. */
  get delayMs(): number {
    return this.decision?.delayMs ?? 0;
  }

  /** Lets the application answer a refusal; what it returns is the body. */
  async denied(response: Response): Promise<unknown> {
    const { onDenied } = this.requestLimiter.settings.options;
    if (onDenied === undefined || this.decision === undefined) return undefined;
    return onDenied(this.request, this.decision, response);
  }

  /** Whether something is to be done when the response is over. */
  get pending(): boolean {
    return this._holds.length > 0 || this.requestLimiter.settings.options.refundWhen !== undefined;
  }

  /** The response is over: what was held is given back, and what was consumed where that is wanted. */
  over(response: Response): void {
    if (this._over) return;
    this._over = true;
    this.#release();
    this.#refund(response).catch(warn);
  }

  async #refund(response: Response): Promise<void> {
    const { limiter, options } = this.requestLimiter.settings;
    const refundWhen = options.refundWhen as ((...given: unknown[]) => unknown) | undefined;
    if (refundWhen === undefined) return;
    const given = refundWhen.length === 1 ? [response] : [this.request, response];
    if (!(await refundWhen(...given))) return;
    await Promise.all(this._decisions.map((decision) => limiter.settle(decision, 0)));
  }

  #release(): void {
    // A hold that cannot be given back ends by itself.
    for (const hold of this._holds) hold.release().catch(() => {});
    this._holds = NONE;
  }

  /** One request, one question about a policy and key: a second one would count it twice. */
  #refuseTwice(before: Admission<Request, Response>): void {
    for (let earlier: Admission<Request, Response> | undefined = before; earlier; earlier = earlier.before) {
      if (earlier.requestLimiter.settings.limiter !== this.requestLimiter.settings.limiter) continue;
      for (const asked of earlier._questions) {
        const again = this._questions.find(({ policy, key }) => policy === asked.policy && key === asked.key);
        if (again !== undefined)
          throw this.#twice(`a middleware with the policy ${JSON.stringify(String(again.policy))}`);
      }
    }
  }

  #twice(what: string): ConfigError {
    const { adapter } = this.requestLimiter;
    return new ConfigError(
      `${adapter.name}: ${what} runs twice for ${adapter.method(this.request)} ${adapter.path(this.request)}, which would count the ` +
        'request twice: use it once on the way of a request, or give each its own policy',
    );
  }
}

/** Nobody waits for what is done after a response: what goes wrong there is told to the process. */
function warn(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error));
}
