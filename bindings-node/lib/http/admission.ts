// The result of checking one request: what its response has to say, and what is due when the response ends.

import process from 'node:process';

import { Decision } from '../decision.js';
import { asWarning, ConfigError, CostError, describe, StoreError, shortened } from '../errors.js';
import { Hold } from '../hold.js';
import { checkIn, type Limiter, policyRefIn } from '../limiter.js';
import type { PolicyLike, PolicyRef } from '../policy.js';
import { RateLimited } from '../rate-limited.js';
import { type ActualCost, nameCost } from '../settled.js';
import { asked, isTracing } from '../tracing.js';
import { announce, leading, type SetField } from './fields.js';
import { asError, problem, type RefusalError, refusalError, retryAfter, status } from './refusal.js';
import type { Awaitable } from './request-adapter.js';
import type { AfterResponse, FixedCostEntry, LimitedEntry, Settings } from './settings.js';

/** One empty list for all requests. */
const NONE: readonly never[] = Object.freeze([]);

/** Whether a request is admitted, and why. */
export class Admission<Request extends object, Response> {
  /** The Decision; of several policies the one that leads. Undefined when the store could not be asked. */
  decision: Decision | undefined;
  /** Why the store could not be asked. */
  error: StoreError | undefined;
  readonly settings: Settings<Request, Response>;
  readonly request: Request;
  /** The admission of the middleware that the request passed before. */
  readonly before: Admission<Request, Response> | undefined;
  // Not `#private`: one admission is made for every request, and private fields would cost more than everything else in it.
  private _checks: readonly RequestCheck[] = NONE;
  private _decisions: readonly Decision[] = NONE;
  /** The Decisions about its checks, in their order. */
  private _entries: readonly Decision[] = NONE;
  private _holds: readonly Hold[] = NONE;
  private _responseEnded = false;
  private _handling = false;

  constructor(
    settings: Settings<Request, Response>,
    request: Request,
    before: Admission<Request, Response> | undefined,
  ) {
    this.decision = undefined;
    this.error = undefined;
    this.settings = settings;
    this.request = request;
    this.before = before;
    for (let earlier = before; earlier !== undefined; earlier = earlier.before) {
      if (earlier.settings === settings) throw this.#twice('this middleware');
    }
  }

  /** The common case: checks one policy, of which nothing is held. */
  checkOne({ policy, cost }: FixedCostEntry<Request>, key: string): Awaitable<this> {
    const { limiter } = this.settings;
    this._checks = [{ policy, key, cost, namesCost: true }];
    if (this.before !== undefined) this.#refuseRepetition(this.before);
    const policyRef = policyRefIn(limiter, policy);
    if (policyRef.holds) return this.#decideAll();
    const called = isTracing ? asked(limiter) : limiter;
    try {
      const decision =
        called === limiter ? checkIn(limiter, policyRef, key, cost) : called.check(policy, key, { cost });
      if (decision instanceof Decision) return this.#decided(decision);
      return decision.then(
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
    // With `onStoreError: 'raise'` there is no Decision without the store: the answer is 503.
    if (!(error instanceof StoreError)) throw error;
    this.error = error;
    return this;
  }

  /** Checks several policies: all are charged, or none is. */
  async check(entries: readonly LimitedEntry<Request>[]): Promise<void> {
    this._checks = await this.#checksOf(entries);
    if (this.before !== undefined) this.#refuseRepetition(this.before);
    await this.#decideAll();
  }

  async #decideAll(): Promise<this> {
    try {
      await this.#decide();
      return this;
    } catch (error) {
      // The store is lost, or an option is wrong: what was held ends.
      this.#release();
      return this.#failed(error);
    }
  }

  async #checksOf(entries: readonly LimitedEntry<Request>[]): Promise<readonly RequestCheck[]> {
    const { request, settings } = this;
    const checks: RequestCheck[] = [];
    let keyFunction: LimitedEntry<Request>['key'] | undefined;
    let key = '';
    for (const entry of entries) {
      // Policies with the same key function call it once.
      if (entry.key !== keyFunction) {
        const named = entry.key(request);
        key = typeof named === 'string' ? named : await named;
        keyFunction = entry.key;
      }
      const cost = typeof entry.cost === 'number' ? entry.cost : await entry.cost(request);
      if (typeof cost !== 'number') {
        throw new CostError(
          `${settings.adapter.name}: the function given as cost returned ${describe(cost)}: it must be a whole number`,
        );
      }
      const { policy, namesCost } = entry;
      checks.push({ policy, key: settings.counted(entry, request, key), cost, namesCost });
    }
    return checks;
  }

  async #decide(): Promise<void> {
    const { limiter } = this.settings;
    const called = isTracing ? asked(limiter) : limiter;
    const held: RequestCheck[] = [];
    const rest: RequestCheck[] = [];
    for (const check of this._checks) (policyRefIn(limiter, check.policy).holds ? held : rest).push(check);
    const decisions: Decision[] = [];
    const entries = new Map<RequestCheck, Decision>();
    const meta = this.settings.meta === undefined ? undefined : await this.#meta();
    // Holds come first, because a hold that is given back leaves no trace.
    for (const check of held) {
      const hold = await takeHold(called, check, meta);
      if (!(hold instanceof Hold)) return this.#refused(hold);
      this._holds = [...this._holds, hold];
      decisions.push(hold.decision);
      entries.set(check, hold.decision);
    }
    const decision = await checkTogether(called, rest, meta);
    if (decision !== undefined) {
      if (!decision.allowed) return this.#refused(decision);
      decisions.push(decision);
      for (const [index, check] of rest.entries()) entries.set(check, decision.decisions[index] ?? decision);
    }
    this._decisions = decisions;
    this._entries = this._checks.map((check) => {
      const entry = entries.get(check) as Decision;
      if (check.namesCost) nameCost(entry);
      return entry;
    });
    this.decision = leading(decisions);
  }

  async #meta(): Promise<Meta> {
    const { adapter, meta } = this.settings;
    if (typeof meta !== 'function') return meta;
    const value = (await meta(this.request)) ?? undefined;
    if (value === undefined || typeof value === 'string' || (value as unknown) instanceof Uint8Array) return value;
    throw new ConfigError(
      `${adapter.name}: the function given as meta returned ${describe(value)}: return a text, bytes, or nothing`,
    );
  }

  #refused(decision: Decision): void {
    this.#decided(decision);
    const { limiter } = this.settings;
    // What a hold charged to other limits of its policy is given back too: a refused request has consumed nothing.
    for (const hold of this._holds) limiter.settle(hold.decision, 0).catch(warn);
    this.#release();
  }

  /** Whether the handler may run. */
  get admitted(): boolean {
    return this.decision?.allowed === true;
  }

  /** The status of a refusal. */
  get status(): 429 | 503 {
    return status(this.decision);
  }

  /** The body of a refusal, as `application/problem+json`. */
  problem(): string {
    return problem(this.decision, this.decision === undefined ? this.#policies() : undefined);
  }

  /** Sets the fields that announce the limits: those of all middleware that the request has passed. */
  announce<Target>(setField: SetField<Target>, target: Target): void {
    let decisions = this._decisions;
    // Of one policy that was asked its Decision says everything.
    let policies = this._checks.length === 1 && this.decision !== undefined ? NONE : this.#policies();
    for (let { before } = this; before !== undefined; before = before.before) {
      if (before.settings.headers === 'off') continue;
      decisions = [...before._decisions, ...decisions];
      policies = [...before.#policies(), ...policies];
    }
    const wait = this.admitted ? undefined : retryAfter(this.decision);
    announce(decisions, this.settings.headers, wait, setField, target, policies);
    // A cache that kept a refusal would answer with it when the wait is over.
    if (!this.admitted) setField(target, 'Cache-Control', 'no-store');
  }

  /** The policies of the request, in the order in which they are announced. */
  #policies(): readonly PolicyRef[] {
    return this._checks.map(({ policy }) => policyRefIn(this.settings.limiter, policy));
  }

  /** How long an admitted request waits before its handler runs: the queue of a leaky bucket. */
  get delayMs(): number {
    return this.decision?.delayMs ?? 0;
  }

  /**
   * Sets the status of the refusal and calls `onDenied`, which may answer it. What that returns is the body. Where it throws, the
   * error is no refusal.
   */
  async denied(response: Response, setStatus: (status: number) => unknown): Promise<unknown> {
    setStatus(this.status);
    const { onDenied } = this.settings;
    if (onDenied === undefined || this.decision === undefined) return undefined;
    try {
      return await onDenied(this.request, this.decision, response);
    } catch (reason) {
      setStatus(500);
      throw asError(reason, this.settings.adapter.name);
    }
  }

  /** The refusal as an error, for the framework's error handling. */
  refusal(headers: Readonly<Record<string, string>> = this.fields()): RefusalError {
    return refusalError(this, headers);
  }

  /** The fields of the answer by name. */
  fields(): Record<string, string> {
    const fields: Record<string, string> = {};
    this.announce(setField, fields);
    return fields;
  }

  /** Whether anything is due when the response ends. */
  get needsEnd(): boolean {
    const { refundWhen, settle } = this.settings;
    return this._holds.length > 0 || refundWhen !== undefined || settle !== undefined;
  }

  /** The handler begins. With `holdUntil: 'handler'` the response alone is not the end from now on. */
  handlerBegins(): void {
    this._handling = this.settings.holdUntil === 'handler';
  }

  /** The handler has ended. */
  handlerEnds(response: Response): void {
    if (!this._handling) return;
    this._handling = false;
    if (this._responseEnded) this.#end(response);
  }

  /** The response has ended: gives holds back, and refunds what was consumed when `refundWhen` says so. */
  end(response: Response): void {
    if (this._responseEnded) return;
    this._responseEnded = true;
    if (!this._handling) this.#end(response);
  }

  #end(response: Response): void {
    this.#release();
    this.#settle(response).catch((reason) => warn(asError(reason, this.settings.adapter.name)));
  }

  /** Charges what the request should have consumed, when an option says how much that is. */
  async #settle(response: Response): Promise<void> {
    const { limiter, refundWhen, settle } = this.settings;
    const entries = this._entries.length === 0 ? this._decisions : this._entries;
    let actual: unknown;
    if (refundWhen !== undefined && (await this.#after(refundWhen, response))) actual = entries.map(() => 0);
    else if (settle !== undefined) actual = await this.#after(settle, response);
    if (actual === undefined || actual === null) return;
    const [first] = entries;
    const whole = entries.length === 1 ? first : first?.withParts(entries);
    if (whole !== undefined) await limiter.settle(whole, actual as ActualCost);
  }

  #after(option: AfterResponse, response: Response): unknown {
    return option.length === 1 ? option(response) : option(this.request, response);
  }

  #release(): void {
    // A hold that cannot be given back ends with its ttl.
    for (const hold of this._holds) hold.release().catch(() => {});
    this._holds = NONE;
  }

  /** Throws when two middleware check the same policy and key, which would count the request twice. */
  #refuseRepetition(before: Admission<Request, Response>): void {
    for (let earlier: Admission<Request, Response> | undefined = before; earlier; earlier = earlier.before) {
      if (earlier.settings.limiter !== this.settings.limiter) continue;
      for (const check of earlier._checks) {
        const again = this._checks.find(({ policy, key }) => policy === check.policy && key === check.key);
        if (again !== undefined)
          throw this.#twice(`a middleware with the policy ${JSON.stringify(shortened(String(again.policy)))}`);
      }
    }
  }

  #twice(what: string): ConfigError {
    const { adapter } = this.settings;
    return new ConfigError(
      `${adapter.name}: ${what} runs twice for ${adapter.method(this.request)} ${shortened(adapter.path(this.request))}, which would ` +
        'count the request twice: use it once on the way of a request, or give each its own policy',
    );
  }
}

function setField(fields: Record<string, string>, name: string, value: string): void {
  fields[name] = value;
}

/** Reports an error after the response: no caller is left to throw it to. */
function warn(error: unknown): void {
  process.emitWarning(asWarning(error));
}

/** What the journal remembers of a request. */
type Meta = string | Uint8Array | undefined;

/** A policy with the key and the cost of one request. */
interface RequestCheck {
  readonly policy: PolicyLike;
  readonly key: string;
  readonly cost: number;
  /** Whether the options name its cost. */
  readonly namesCost: boolean;
}

/** Checks several policies as one Decision. */
async function checkTogether(
  limiter: Limiter,
  checks: readonly RequestCheck[],
  meta: Meta,
): Promise<Decision | undefined> {
  const [only] = checks;
  if (only === undefined) return undefined;
  if (checks.length > 1) {
    return limiter.checkAll(
      checks.map(({ policy, key, cost, namesCost }) => ({ policy, key, cost: namesCost ? cost : undefined, meta })),
    );
  }
  const { policy, key, cost } = only;
  if (meta !== undefined) return limiter.check(policy, key, { cost, meta });
  return cost === 1 ? limiter.check(policy, key) : limiter.check(policy, key, { cost });
}

/** Takes a hold; the denied Decision when there is no room. */
async function takeHold(limiter: Limiter, check: RequestCheck, meta: Meta): Promise<Hold | Decision> {
  const { policy, key, cost } = check;
  try {
    return await limiter.hold(policy, key, meta === undefined ? { cost } : { cost, meta });
  } catch (error) {
    if (error instanceof RateLimited) return error.decision;
    throw error;
  }
}
