// The result of checking one request: the fields of its response, and the work that is due when the response ends.

import process from 'node:process';

import { type Cost, isUnits, nothingOf } from '../cost.js';
import { Decision, partsOf, policyRefOf } from '../decision.js';
import { delay } from '../delay.js';
import { asWarning, ConfigError, CostError, describe, StoreError, shortened } from '../errors.js';
import type { Hold, PolicyCheck } from '../hold.js';
import { admitIn, checkAllIn, checkIn, policyRefIn } from '../limiter.js';
import type { PolicyLike, PolicyRef } from '../policy.js';
import { type ActualCost, nameCost } from '../settled.js';
import { asked, spansOf } from '../tracing.js';
import { type Adapter, type Awaitable, type Ending, isOver } from './adapter.js';
import { announce, type SetField, setInRecord } from './fields.js';
import { rememberAddresses } from './keys.js';
import { asError, problem, refusalError, retryAfter, status } from './refusal.js';
import type { FixedCostEntry, LimitedEntry, Settings } from './settings.js';

/** The property with the admissions of a request. All copies of this module share the symbol. */
const ADMISSION = Symbol.for('tidegate.admission');

/** A policy with the key and the cost of one request. */
interface RequestCheck extends PolicyCheck {
  /** True if the options name its cost. */
  readonly namesCost: boolean;
}

/** The object that remembers the admissions of a request. */
interface Memory<Request extends object, Response> {
  [ADMISSION]?: Admission<Request, Response> | undefined;
}

/** Returns the admission of the last middleware that a request has passed. */
export function latestAdmission<Request extends object, Response>(
  adapter: Adapter<Request, Response>,
  request: Request,
): Admission<Request, Response> | undefined {
  return (adapter.memory(request) as Memory<Request, Response>)[ADMISSION];
}

/**
 * Checks a request before its handler runs. Returns undefined if the request is not limited, and an immediate admission
 * without a promise. Throws an immediate error. `memory` remembers the admission, by default it is that of the request.
 */
export function admit<Request extends object, Response>(
  settings: Settings<Request, Response>,
  request: Request,
  memory?: Memory<Request, Response>,
): Awaitable<Admission<Request, Response> | undefined> {
  const { adapter, addresses, enabled, methods, only, together } = settings;
  // This also applies if the middleware limits nothing, because those behind it see the same proxies.
  if (addresses !== undefined) rememberAddresses(adapter.memory(request), addresses);
  if (!enabled || (methods !== undefined && !methods.has(adapter.method(request)))) return undefined;
  const first = only ?? together?.[0];
  if (first === undefined) return admitLater(settings, request, memory);
  try {
    const key = first.key(request);
    return typeof key === 'string'
      ? admitWith(settings, request, memory, key)
      : admitLater(settings, request, memory, key);
  } catch (reason) {
    throw asError(reason, adapter.name);
  }
}

/** Checks a request after its key is known, if nothing else but the cost of one policy depends on the request. */
function admitWith<Request extends object, Response>(
  settings: Settings<Request, Response>,
  request: Request,
  memory: Memory<Request, Response> | undefined,
  key: string,
): Awaitable<Admission<Request, Response> | undefined> {
  const { only, together } = settings;
  if (only === undefined) return new Admission(settings, request, memory).checkTogether(together ?? NONE, key);
  const { policy, cost } = only;
  const made = typeof cost === 'function' ? cost(request) : cost;
  if (made !== cost && (typeof made !== 'number' || made === 0)) {
    // It comes later, or it has units, is 0 or wrong. The functions are not called again.
    return admitLater(settings, request, memory, undefined, [{ ...only, key: () => key, cost: () => made }]);
  }
  const counted = settings.counted(only, request, key);
  return new Admission(settings, request, memory).checkOne(policy, made as Cost, counted);
}

async function admitLater<Request extends object, Response>(
  settings: Settings<Request, Response>,
  request: Request,
  memory?: Memory<Request, Response>,
  key?: Promise<string>,
  known = settings.entries,
): Promise<Admission<Request, Response> | undefined> {
  const { adapter, options } = settings;
  try {
    if (key !== undefined) return await admitWith(settings, request, memory, await key);
    if (await options.skip?.(request)) return undefined;
    const entries = known ?? (await settings.entriesOf(request));
    if (entries.length === 0) return undefined;
    const checked = await new Admission(settings, request, memory).check(entries);
    if (!checked.costsNothing) return checked;
    (memory ?? (adapter.memory(request) as Memory<Request, Response>))[ADMISSION] = checked.before;
    return undefined;
  } catch (reason) {
    throw asError(reason, adapter.name);
  }
}

/** One empty list for all requests. */
const NONE: readonly never[] = Object.freeze([]);

/** The admission of a request, or its refusal. */
export class Admission<Request extends object, Response> {
  /** The Decision. With several policies it is the one that leads. Undefined if the store could not be asked. */
  decision: Decision | undefined;
  /** The reason why the store could not be asked. */
  error: StoreError | undefined;
  readonly settings: Settings<Request, Response>;
  readonly request: Request;
  /** The admission of the middleware that the request passed before. */
  readonly before: Admission<Request, Response> | undefined;
  // Not `#private`: one admission is made for every request, and private fields would cost more than everything else in it.
  private _checks: readonly RequestCheck[] = NONE;
  private _holds: readonly Hold[] = NONE;
  private _responseEnded = false;
  private _handling = false;

  constructor(
    settings: Settings<Request, Response>,
    request: Request,
    memory: Memory<Request, Response> = settings.adapter.memory(request),
  ) {
    this.decision = undefined;
    this.error = undefined;
    this.settings = settings;
    this.request = request;
    this.before = memory[ADMISSION];
    if (this.before?.passed.some((earlier) => earlier.settings === settings)) throw this.#twice('this middleware');
    memory[ADMISSION] = this;
  }

  /** This admission and those before it, the newest first. */
  get passed(): readonly Admission<Request, Response>[] {
    return this.before === undefined ? [this] : [this, ...this.before.passed];
  }

  /** The common case: checks one policy. If it holds units, it takes the general way. */
  checkOne(policy: PolicyLike, cost: Cost, key: string): Awaitable<this> {
    const { limiter } = this.settings;
    this._checks = [{ policy, key, cost, namesCost: true }];
    if (this.before !== undefined) this.#refuseRepetition(this.before);
    const policyRef = policyRefIn(limiter, policy);
    if (policyRef.holds) return this.#decideAll();
    const called = asked(limiter);
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

  /** Checks several policies that share a key: all are charged, or none is. If one holds units, they take the general way. */
  checkTogether(entries: readonly FixedCostEntry<Request>[], key: string): Awaitable<this> {
    const { settings, request } = this;
    const { limiter } = settings;
    this._checks = entries.map((entry) => ({
      policy: entry.policy,
      key: settings.counted(entry, request, key),
      cost: entry.cost,
      namesCost: entry.namesCost,
    }));
    if (this.before !== undefined) this.#refuseRepetition(this.before);
    const holds = entries.some(({ policy }) => policyRefIn(limiter, policy).holds);
    if (holds || asked(limiter) !== limiter) return this.#decideAll();
    try {
      const decision = checkAllIn(limiter, this._checks);
      if (decision instanceof Decision) return this.#admitted(decision);
      return decision.then(
        (decision) => this.#admitted(decision),
        (error) => this.#failed(error),
      );
    } catch (error) {
      return this.#failed(error);
    }
  }

  /** Takes the Decision of all policies, in the order in which they are asked. */
  #admitted(decision: Decision): this {
    const entries = partsOf(decision);
    for (const [index, { namesCost }] of this._checks.entries()) if (namesCost) nameCost(entries[index] as Decision);
    return this.#decided(decision);
  }

  #decided(decision: Decision): this {
    this.decision = decision;
    return this;
  }

  #failed(error: unknown): this {
    // With `onStoreError: 'raise'` there is no Decision without the store: the answer is 503.
    if (!(error instanceof StoreError)) throw error;
    this.error = error;
    return this;
  }

  /** Checks several policies: all are charged, or none is. */
  async check(entries: readonly LimitedEntry<Request>[]): Promise<this> {
    this._checks = await this.#checksOf(entries);
    if (this.costsNothing) return this;
    if (this.before !== undefined) this.#refuseRepetition(this.before);
    return this.#decideAll();
  }

  async #decideAll(): Promise<this> {
    try {
      return await this.#decide();
    } catch (error) {
      // The store is lost, or an option is wrong, so the holds end.
      this.#release();
      return this.#failed(error);
    }
  }

  async #checksOf(entries: readonly LimitedEntry<Request>[]): Promise<readonly RequestCheck[]> {
    const { request, settings } = this;
    const checks: RequestCheck[] = [];
    let keyFunction: LimitedEntry<Request>['key'] | undefined;
    let key = '';
    let shares: readonly (Cost | undefined)[] | undefined;
    for (const [index, entry] of entries.entries()) {
      // Policies with the same key function call it once.
      if (entry.key !== keyFunction) {
        const named = entry.key(request);
        key = typeof named === 'string' ? named : await named;
        keyFunction = entry.key;
      }
      const { policy } = entry;
      let cost: Cost | undefined;
      if (typeof entry.cost !== 'function') {
        cost = entry.namesCost ? entry.cost : undefined;
      } else if (entry.ownsCost) {
        cost = this.#costOf(await entry.cost(request));
      } else {
        // Policies that share a cost function call it once. Each takes its share.
        shares ??= settings.sharesOf(this.#costOf(await entry.cost(request)), entries);
        cost = shares[index];
      }
      // A cost of 0 leaves nothing to limit, as for an empty batch.
      if (cost === 0) continue;
      const namesCost = cost !== undefined;
      checks.push({ policy, key: settings.counted(entry, request, key), cost: cost ?? 1, namesCost });
    }
    return checks;
  }

  /** Checks the result of a cost function. */
  #costOf(cost: unknown): Cost {
    if (typeof cost === 'number' || isUnits(cost)) return cost;
    throw new CostError(
      `${this.settings.adapter.name}: the function given as cost returned ${describe(cost)}: it must be a whole number, or an object ` +
        'of such numbers by the names of units',
    );
  }

  async #decide(): Promise<this> {
    const { limiter, options } = this.settings;
    const meta = options.meta === undefined ? undefined : await this.#made('meta', 'a text, bytes, or nothing');
    const priority =
      options.priority === undefined ? undefined : await this.#made('priority', 'the name of a class, or nothing');
    const [spans, began] = [spansOf(limiter), Date.now()];
    try {
      const common = { meta, priority: priority as string | undefined };
      const answer = await admitIn(limiter, this._checks, common, spans !== undefined);
      spans?.ended(began, answer.steps);
      this._holds = answer.holds;
      return answer.refused ? this.#decided(answer.decision) : this.#admitted(answer.decision);
    } catch (error) {
      const policies = this._checks.map(({ policy }) => policy);
      spans?.failed(began, error, policies);
      throw error;
    }
  }

  /** Returns the metadata or the class of the request, which a function may make. */
  async #made(name: 'meta' | 'priority', what: string): Promise<string | Uint8Array | undefined> {
    const { adapter, options } = this.settings;
    const given = options[name];
    const made: unknown = typeof given === 'function' ? ((await given(this.request)) ?? undefined) : given;
    if (made === undefined || typeof made === 'string') return made;
    if (name === 'meta' && made instanceof Uint8Array) return made;
    throw new ConfigError(`${adapter.name}: the function given as ${name} returned ${describe(made)}: return ${what}`);
  }

  /** True if the cost of the request is 0 for all policies, so that nothing is asked. */
  get costsNothing(): boolean {
    return this._checks.length === 0;
  }

  /** True if the handler may run. */
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
  announce<Target = Response>(
    target: Target,
    setField = this.settings.adapter.setField as unknown as SetField<Target>,
  ): void {
    let decisions = this.#decisions();
    // If every policy was asked, the Decision has everything.
    const count = this.decision === undefined ? 0 : partsOf(this.decision).length;
    let policies = count === this._checks.length ? NONE : this.#policies();
    for (let { before } = this; before !== undefined; before = before.before) {
      if (before.settings.headers === 'off') continue;
      decisions = [...before.#decisions(), ...decisions];
      policies = [...before.#policies(), ...policies];
    }
    const wait = this.admitted ? undefined : retryAfter(this.decision);
    announce(decisions, this.settings.headers, wait, setField, target, policies);
    // If a cache kept a refusal, it would still answer with it after the wait.
    if (!this.admitted) setField(target, 'Cache-Control', 'no-store');
  }

  /** Returns the Decision in a list, which is empty if the store could not be asked. */
  #decisions(): readonly Decision[] {
    return this.decision === undefined ? NONE : [this.decision];
  }

  /** Returns the policies of the request, in the order in which they are announced. */
  #policies(): readonly PolicyRef[] {
    return this._checks.map(({ policy }) => policyRefIn(this.settings.limiter, policy));
  }

  /** Returns the fields of the answer by name. */
  fields(): Record<string, string> {
    const fields: Record<string, string> = {};
    this.announce(fields, setInRecord);
    return fields;
  }

  /** The milliseconds that an admitted request waits before its handler runs, in the queue of a leaky bucket. */
  get delayMs(): number {
    return this.decision?.delayMs ?? 0;
  }

  /**
   * Answers a refused request. `onDenied` may answer it, with the status of the refusal, or return the body. If it
   * throws, the answer is its error and no refusal.
   */
  async refuse(response: Response): Promise<unknown> {
    const { adapter, options } = this.settings;
    const { onDenied } = options;
    if (onDenied === 'throw' && adapter.throwsRefusals !== true) throw refusalError(this);
    adapter.setStatus(response, this.status);
    let body: unknown;
    try {
      const { decision } = this;
      if (typeof onDenied === 'function' && decision !== undefined) {
        body = await onDenied(this.request, decision, this.#given(response));
      }
    } catch (reason) {
      adapter.setStatus(response, 500);
      throw asError(reason, adapter.name);
    }
    return adapter.refuse(response, body, this);
  }

  /** Returns the object that functions among the options get as the response. */
  #given(response: Response): never {
    const { given } = this.settings.adapter;
    return (given === undefined ? response : given(response)) as never;
  }

  /** True if work is due when the response ends. */
  get needsEnd(): boolean {
    return this.settings.observesEnd || this._holds.length > 0;
  }

  /** Ends the admission with a response: when its last byte was handed over, or when its client has gone. */
  endWith(ending: Ending, response: Response): void {
    if (!this.needsEnd) return;
    const end = (): void => this.end(response);
    if (isOver(ending)) end();
    ending.once('finish', end);
    ending.once('close', end);
  }

  /** Ends the admission with a response, and waits for its delay. Returns false if no handler should start any more. */
  async mayBegin(ending: Ending, response: Response): Promise<boolean> {
    this.endWith(ending, response);
    await delay(this.delayMs);
    return !isOver(ending);
  }

  /** Called when the handler begins. With `holdUntil: 'handler'` the response alone is not the end from now on. */
  handlerBegins(): void {
    this._handling = this.settings.options.holdUntil === 'handler';
  }

  /** Called when the handler has ended. */
  handlerEnds(response: Response): void {
    if (!this._handling) return;
    this._handling = false;
    if (this._responseEnded) this.#end(response);
  }

  /** Called when the response has ended. Gives holds back, and refunds the consumed units if `refundWhen` returns true. */
  end(response: Response): void {
    if (this._responseEnded) return;
    this._responseEnded = true;
    if (!this._handling) this.#end(response);
  }

  #end(response: Response): void {
    this.#release();
    this.#settle(response).catch((reason) => warn(asError(reason, this.settings.adapter.name)));
  }

  /** Settles the request to its actual cost, if an option gives one. */
  async #settle(response: Response): Promise<void> {
    const { decision, settings } = this;
    const { limiter, options } = settings;
    const isRefunded = options.refundWhen !== undefined && (await this.#after(options.refundWhen, response));
    if (decision === undefined || (!isRefunded && options.settle === undefined)) return;
    const actual = isRefunded
      ? partsOf(decision).map((entry) => nothingOf(policyRefOf(entry)))
      : await this.#after(options.settle, response);
    if (actual !== undefined && actual !== null) await limiter.settle(decision, actual as ActualCost);
  }

  #after(option: unknown, response: Response): unknown {
    if (typeof option !== 'function') return undefined;
    const given = this.#given(response);
    return option.length === 1 ? option(given) : option(this.request, given);
  }

  #release(): void {
    // A hold that cannot be given back ends with its ttl.
    for (const hold of this._holds) hold.release().catch(() => {});
    this._holds = NONE;
  }

  /** Throws if two middleware check the same policy and key, which would count the request twice. */
  #refuseRepetition(before: Admission<Request, Response>): void {
    const earlier = before.passed.filter(({ settings }) => settings.limiter === this.settings.limiter);
    const checks = earlier.flatMap(({ _checks }) => _checks);
    const again = this._checks.find((check) =>
      checks.some(({ policy, key }) => policy === check.policy && key === check.key),
    );
    if (again === undefined) return;
    const { name } = policyRefIn(this.settings.limiter, again.policy);
    throw this.#twice(`a middleware with the policy ${JSON.stringify(shortened(name))}`);
  }

  #twice(what: string): ConfigError {
    const { adapter } = this.settings;
    return new ConfigError(
      `${adapter.name}: ${what} runs twice for ${adapter.method(this.request)} ${shortened(adapter.path(this.request))}, which would ` +
        'count the request twice: use it once on the way of a request, or give each its own policy',
    );
  }
}

/** Reports an error after the response: no caller is left to throw it to. */
function warn(error: unknown): void {
  process.emitWarning(asWarning(error));
}
