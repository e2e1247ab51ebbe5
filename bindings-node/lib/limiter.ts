import { CallKind, DecisionField, TaskKind } from '../binding/index.js';
import { type Attempt, encodedMeta } from './attempt.js';
import {
  type AcquireOptions,
  blockLength,
  type CheckEntry,
  type CheckOptions,
  type CostOptions,
  checkClass,
  checkEntriesOf,
  checkedOptions,
  type HeldWork,
  type HoldOptions,
  holdArguments,
  type ObserveOptions,
  type OverrideOptions,
  onlyCost,
  type PeekOptions,
} from './call-options.js';
import { type Cost, checkedCost, isUnits, numberOf, unitsOf } from './cost.js';
import { Decision, numbersOf, policyRefOf } from './decision.js';
import type { DenyCache } from './deny-cache.js';
import { ConfigError, checkConstant, describe, invalidCost, invalidKey } from './errors.js';
import { isRecord } from './given-options.js';
import { type Admitted, type Hold, Holds, type PolicyCheck } from './hold.js';
import { builderOf, type LimiterOptions } from './limiter-options.js';
import { throwIfFailed, unwrap } from './native.js';
import { type OverriddenKey, overriddenKeyFrom } from './overridden-key.js';
import { type OverrideLike, overrideText, type Policy, type PolicyLike, type PolicyRef, policyFrom } from './policy.js';
import { PolicyRefs } from './policy-refs.js';
import { type Observation, observationsOf } from './response-reading.js';
import { checkPercent } from './rollout.js';
import { type ActualCost, claimed, settleEach, withNamedCosts } from './settled.js';
import type { Counters, MetricValue, Stats } from './stats.js';
import { StoreChangeReporter } from './store-changes.js';
import type { CallTarget } from './tasks.js';
import { Transport } from './transport.js';
import { type WrapOptions, wrapped } from './wrap.js';

/** Whether usage lives in this process alone. */
export let isLocal: (limiter: Limiter) => boolean;

/** A policy as a limiter has resolved it. */
export let policyRefIn: (limiter: Limiter, policy: PolicyLike) => PolicyRef;

/**
 * Checks a policy that is resolved. An answer that is there at once is returned without a promise; an error that is found at
 * once is thrown.
 */
export let checkIn: (limiter: Limiter, policyRef: PolicyRef, key: string, cost: Cost) => Decision | Promise<Decision>;

/** Asks the policies of a request: what they hold is held, all others are checked, and one refusal takes everything back. */
export let admitIn: (
  limiter: Limiter,
  checks: readonly PolicyCheck[],
  options: { readonly meta: string | Uint8Array | undefined; readonly priority: string | undefined },
  recordsSteps: boolean,
) => Promise<Admitted>;

/** Checks several policies, all or nothing. It answers as `checkIn` does. */
export let checkAllIn: (limiter: Limiter, checks: readonly PolicyCheck[]) => Decision | Promise<Decision>;

/** The Decision of `acquire` where memory answers at once; one that is not allowed where the call may have to wait. */
export let acquireIn: (
  limiter: Limiter,
  policyRef: PolicyRef,
  key: string,
  cost: number,
) => Decision | Promise<Decision> | undefined;

/** Throws where no call of that cost could be made of a policy that is resolved. */
export let checkCostIn: (limiter: Limiter, policyRef: PolicyRef, cost: Cost) => void;

/** Registers that an object, `by` in errors, uses a policy: `reload` does not drop it. */
export let usePolicyIn: (limiter: Limiter, policy: PolicyLike, by: string, user: object) => void;

/** The values of a metric: its name, the values of its labels, and its value. */
export let samplesIn: (limiter: Limiter, metric: string) => [string, string[], MetricValue][];

/** Whether another call may have heard that the other side refuses calls of a key, since that Decision was given. A peek tells. */
export let mayBeRefusedSince: (limiter: Limiter, key: string, decision: Decision) => boolean;

/** A number that is another one after each `reload`. */
export let generationOf: (limiter: Limiter) => number;

/** Set before the constructor is called for a limiter of a policy file, so that its signature is for users only. */
let fileOfNext: string | undefined;

/**
 * Checks limits. Calls that wait at the same moment travel to Redis as one script call; memory answers at once.
 *
 * ```ts
 * const limiter = new Limiter({ store: 'redis://127.0.0.1:6379', policies: { login: '20/minute; 5/3s' } });
 * const decision = await limiter.check('login', 'alice');
 * if (!decision.allowed) console.log(`wait ${decision.retryAfterMs} ms`);
 * ```
 *
 * The type of a limiter whose policies are given in code has their names: `check('lgoin', …)` does not compile, a notation in
 * place and a Policy do. `const limiter: Limiter = new Limiter(…)` takes any text.
 *
 * An open limiter does not keep the process alive, but calls that wait for an answer do. A method that returns a promise rejects it, also
 * for a mistake in the arguments. Any other method throws.
 */
export class Limiter<Name extends string = string> {
  readonly #transport: Transport;
  readonly #denyCache: DenyCache | undefined;
  readonly #holds: Holds;
  readonly #policyRefs: PolicyRefs;
  readonly #isLocal: boolean;
  /** Kept, because the native side has only a weak reference to it. */
  readonly #reporter: StoreChangeReporter;
  #closing: Promise<void> | undefined;

  /** Makes a limiter. Nothing is connected before the first call. */
  constructor(options: LimiterOptions<Name> = {}) {
    const file = fileOfNext;
    fileOfNext = undefined;
    const builder = builderOf(options, file);
    const { clock, logger, onChange, logRefusals } = options;
    const isLocal = builder.isLocal();
    this.#isLocal = isLocal;
    this.#reporter = new StoreChangeReporter(logger, onChange);
    // Weak: the native side keeps these callbacks for as long as it lives. A strong reference would keep both for ever.
    const weak = new WeakRef(this.#reporter);
    builder.onWarning((message) => weak.deref()?.warn(message));
    if (!isLocal) builder.onChange((change) => weak.deref()?.report(change));
    // The core counts the denials of each key for `tidegate top`, and logs refusals: it has to see them.
    const isSeen = logRefusals === true || (process.env['TIDEGATE_TOP'] ?? '') !== '';
    this.#transport = new Transport(builder, clock, !isLocal && !isSeen);
    this.#denyCache = this.#transport.denyCache;
    this.#policyRefs = new PolicyRefs(this.#transport);
    this.#holds = new Holds(this.#transport.nativeLimiter, this.#transport.tasks, (decision, actualCost) =>
      this.settle(decision, actualCost),
    );
  }

  /** The limiter that a policy file describes: its policies, and its store and prefix unless others are given. */
  static async fromFile(path: string, options: LimiterOptions = {}): Promise<Limiter> {
    if (typeof path !== 'string') throw new ConfigError(`a policy file cannot be ${describe(path)}: give its path`);
    fileOfNext = path;
    try {
      return new Limiter(options);
    } finally {
      fileOfNext = undefined;
    }
  }

  #call(kind: number, policy: PolicyLike, key: string, cost: unknown): Promise<Decision> {
    try {
      return Promise.resolve(this.#callResolved(kind, this.#policyRefs.of(policy), key, cost));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #callResolved(kind: number, policyRef: PolicyRef, key: string, cost: unknown): Decision | Promise<Decision> {
    if (typeof key !== 'string') throw invalidKey(key);
    if (typeof cost !== 'number') return this.#callOfUnits(kind, policyRef, key, cost);
    if (this.#denyCache !== undefined && kind === CallKind.Check) {
      const denial = this.#denyCache.find(policyRef, key, cost);
      if (denial !== undefined) return new Decision(policyRef, key, cost, denial);
    }
    return this.#transport.call(kind, policyRef, key, cost);
  }

  /** A call that says numbers by the names of units crosses alone. */
  #callOfUnits(kind: number, policyRef: PolicyRef, key: string, cost: unknown): Decision | Promise<Decision> {
    if (!isUnits(cost)) throw invalidCost(cost);
    if (!key.isWellFormed()) throw invalidKey(key);
    return this.#transport.callWith(kind, { policyRef, key, cost: numberOf(cost), units: cost });
  }

  #target(policy: PolicyLike, key: string, given: Cost = 1, meta?: string | Uint8Array, priority?: string): CallTarget {
    const policyRef = this.#policyRefs.of(policy);
    // These keys cross as strings, and Node-API would replace half a surrogate pair by another character.
    if (typeof key !== 'string' || !key.isWellFormed()) throw invalidKey(key);
    const cost = checkedCost(given);
    const encoded = meta === undefined ? undefined : encodedMeta(meta);
    return { policyRef, key, cost: numberOf(cost), units: unitsOf(cost), meta: encoded, priority };
  }

  /** Asks and consumes, in one atomic step. A denial is an answer, not an error. */
  check(policy: PolicyLike<Name>, key: string, options?: CheckOptions): Promise<Decision> {
    if (options === undefined) return this.#call(CallKind.Check, policy, key, 1);
    const cost = onlyCost(options);
    return cost === undefined ? this.#checkWith(policy, key, options) : this.#call(CallKind.Check, policy, key, cost);
  }

  async #checkWith(policy: PolicyLike, key: string, options: CheckOptions): Promise<Decision> {
    const { cost = 1, meta, partial = false, priority } = checkedOptions('check', options);
    if (meta === undefined && priority === undefined)
      return this.#call(partial ? CallKind.Take : CallKind.Check, policy, key, cost);
    return this.#transport.callWith(
      partial ? CallKind.Take : CallKind.Check,
      this.#target(policy, key, cost, meta, priority),
    );
  }

  /** Asks without consuming. */
  peek(policy: PolicyLike<Name>, key: string, options?: PeekOptions): Promise<Decision> {
    if (options === undefined) return this.#call(CallKind.Peek, policy, key, 1);
    return this.#callWith(CallKind.Peek, 'peek', policy, key, options);
  }

  async #callWith(
    kind: number,
    call: string,
    policy: PolicyLike,
    key: string,
    options: PeekOptions,
  ): Promise<Decision> {
    const { cost, priority } = checkedOptions(call, options);
    if (priority !== undefined) {
      return this.#transport.callWith(kind, this.#target(policy, key, cost, undefined, priority));
    }
    return this.#call(kind, policy, key, cost === undefined && kind !== CallKind.Charge ? 1 : cost);
  }

  /** Consumes even past the limit: windows count it, buckets go into debt. */
  charge(policy: PolicyLike<Name>, key: string, cost: number | CostOptions): Promise<Decision> {
    if (typeof cost === 'object' && isRecord(cost)) return this.#callWith(CallKind.Charge, 'charge', policy, key, cost);
    return this.#call(CallKind.Charge, policy, key, cost);
  }

  /** Gives units back; never above full, never creates credit. */
  refund(policy: PolicyLike<Name>, key: string, options: CostOptions | number = 1): Promise<Decision> {
    if (typeof options === 'object' && isRecord(options))
      return this.#callWith(CallKind.Refund, 'refund', policy, key, options);
    return this.#call(CallKind.Refund, policy, key, options);
  }

  /**
   * After the work: charges or refunds the difference between what a check consumed and what it should have. Once. A peek has
   * consumed nothing: a settle of its Decision charges the actual cost.
   */
  async settle(decision: Decision, actualCost: ActualCost): Promise<void> {
    const settle = async (entry: Decision, cost: Cost): Promise<unknown> => {
      const known = policyRefOf(entry);
      const policyRef = this.#policyRefs.of(known.given);
      return this.#transport.settle(policyRef, entry, policyRef !== known, cost);
    };
    await settleEach(claimed(decision, actualCost, this.#policyRefs.identity), settle);
  }

  /**
   * Learns what the response to a call says of the limits of the other side: it holds for every process that uses the key, and nothing
   * that a response says admits a call earlier. `decision` is the one of the call: what was charged since then is counted beside what
   * the response says is used.
   */
  async observe(
    policy: PolicyLike<Name>,
    key: string,
    observations: Observation | readonly Observation[],
    options: ObserveOptions = {},
  ): Promise<Decision> {
    const { decision: answered } = checkedOptions('observe', options);
    const target = this.#target(policy, key);
    const { tasks, nativeLimiter } = this.#transport;
    const said = observationsOf(observations);
    const numbers = answered === undefined ? undefined : [...numbersOf(answered)];
    const { decision } = await tasks.begin([target], (ticket) =>
      nativeLimiter.observe(ticket, target.policyRef.id, target.key, said, numbers),
    );
    return decision as Decision;
  }

  /** Checks several policies and keys: all are charged, or none is. */
  async checkAll(entries: Iterable<CheckEntry<Name>>, ...none: readonly never[]): Promise<Decision> {
    const all = checkEntriesOf(entries, none);
    const targets = this.#policyRefs.together(() =>
      all.map(({ policy, key, cost, meta, priority }) => this.#target(policy, key, cost, meta, priority)),
    );
    return withNamedCosts(this.#transport.checkAll(targets), all);
  }

  /** Waits until it is admitted; a denied Decision when that is too late. Callers of one key are admitted in their order. */
  async acquire(policy: PolicyLike<Name>, key: string, options: AcquireOptions = {}): Promise<Decision> {
    const { cost, timeoutMs, signal, meta, priority } = checkedOptions('acquire', options);
    const target = this.#target(policy, key, cost, meta, priority);
    // What is wrong with a timeout the task says.
    if (!signal?.aborted && (timeoutMs ?? 0) >= 0) {
      const seen = await this.#transport.acquireAtOnce(target);
      if (seen?.allowed) return seen;
    }
    const { decision } = await this.#transport.tasks.about(TaskKind.Acquire, target, signal, finite(timeoutMs));
    return decision as Decision;
  }

  /**
   * Takes units of a `concurrency` limit, runs the function and gives them back when it has ended, however it ends. They
   * are renewed until then. With `timeoutMs` it waits for room, in the line of all who wait for the key; `Infinity` is for as long
   * as it takes. Throws RateLimited when there is none. Without a function the Hold itself is returned:
   * `await using hold = await limiter.hold('exports', 'alice')`.
   */
  hold<T>(policy: PolicyLike<Name>, key: string, work: HeldWork<T>, options?: HoldOptions): Promise<T>;
  hold<T>(policy: PolicyLike<Name>, key: string, options: HoldOptions | undefined, work: HeldWork<T>): Promise<T>;
  hold(policy: PolicyLike<Name>, key: string, options?: HoldOptions): Promise<Hold>;
  async hold<T>(
    policy: PolicyLike<Name>,
    key: string,
    options?: HoldOptions | HeldWork<T>,
    work?: HeldWork<T> | HoldOptions,
  ): Promise<T | Hold> {
    const { cost, timeoutMs = 0, signal, meta, priority, run } = holdArguments(options, work);
    const target = this.#target(policy, key, cost, meta, priority);
    const hold = await this.#holds.take(target, signal, finite(timeoutMs));
    if (run === undefined) return hold;
    try {
      return await run(hold);
    } finally {
      await hold.release();
    }
  }

  /** Denies the key for that many milliseconds, whatever its usage. */
  async block(policy: PolicyLike<Name>, key: string, ms: number): Promise<void> {
    const length = blockLength(ms);
    await this.#transport.tasks.about(TaskKind.Block, this.#target(policy, key), undefined, length);
  }

  /** Ends a block. */
  async unblock(policy: PolicyLike<Name>, key: string): Promise<void> {
    await this.#transport.tasks.about(TaskKind.Unblock, this.#target(policy, key));
  }

  /** Forgets a key's usage and ends its block. Its journal stays. */
  async clear(policy: PolicyLike<Name>, key: string): Promise<void> {
    await this.#transport.tasks.about(TaskKind.Clear, this.#target(policy, key));
  }

  /**
   * Gives a key other limits than its policy, for `ttlMs` or until they are removed: a notation, a Limit, a list of both, or a Policy, of
   * which only the limits count. `'none'` is no limit, and `null` the limits of its policy again. Other processes have them within a
   * second. What was used stays used for each limit of the same algorithm, period and unit.
   */
  async override(
    policy: PolicyLike,
    key: string,
    limits: OverrideLike | null,
    options: OverrideOptions = {},
  ): Promise<void> {
    const { ttlMs } = checkedOptions('override', options);
    const text = limits === null ? undefined : overrideText(limits);
    const target = this.#target(policy, key);
    const { tasks, nativeLimiter } = this.#transport;
    await tasks.begin([target], (ticket) =>
      nativeLimiter.setOverride(ticket, target.policyRef.id, target.key, text, ttlMs),
    );
  }

  /** The keys of a policy that `override` has given other limits, in the order of the keys. */
  async overrides(policy: PolicyLike): Promise<readonly OverriddenKey[]> {
    const { tasks, nativeLimiter } = this.#transport;
    const { id } = this.#policyRefs.of(policy);
    const { overrides } = await tasks.begin([], (ticket) => nativeLimiter.overrides(ticket, id));
    return (overrides ?? []).map(overriddenKeyFrom);
  }

  /** The newest attempts, newest first, of a policy with a `journal`. */
  async journal(policy: PolicyLike<Name>, key: string): Promise<readonly Attempt[]> {
    return this.#transport.tasks.journal(this.#target(policy, key));
  }

  /** Forgets all that is stored under the prefix: usage, blocks and journals. On Redis it takes as long as there are keys. */
  async clearAll(): Promise<void> {
    await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.clearAll(ticket));
  }

  /** Resolves when the store answers; throws why it does not. */
  async ping(): Promise<void> {
    await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.ping(ticket));
  }

  /** The policy that a call would apply. */
  policy(policy: PolicyLike<Name>): Policy {
    return policyFrom(unwrap(this.#transport.nativeLimiter.policy(this.#policyRefs.of(policy).id)));
  }

  /** How many of this limiter's callers wait for a key, in `acquire` or for a hold. */
  waiting(policy: PolicyLike<Name>, key: string): number {
    const { policyRef } = this.#target(policy, key);
    checkConstant(key, 'a key');
    return this.#transport.nativeLimiter.waiting(policyRef.id, key);
  }

  /** That percentage of the keys uses the new store from the next call on, in a limiter with a `rollout`. */
  setRollout(percent: number): void {
    checkPercent(percent);
    // Calls that were made before use the store they would have used.
    this.#transport.flush();
    throwIfFailed(this.#transport.nativeLimiter.setRollout(percent));
    // Denials of the other store are not repeated from now on.
    this.#transport.collect();
  }

  /** What was counted since the limiter was made. */
  counters(): Counters {
    this.#transport.countRepeated();
    return JSON.parse(this.#transport.nativeLimiter.counters()) as Counters;
  }

  /** Decisions counted by policy, and calls to the store: numbers for an exporter of metrics. */
  stats(): Stats {
    this.#transport.countRepeated();
    return JSON.parse(this.#transport.nativeLimiter.stats()) as Stats;
  }

  /** Takes the changed policy file, as a whole or not at all. Policies that were given in code stay. */
  async reload(): Promise<void> {
    try {
      await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.reload(ticket));
      this.#policyRefs.reloads++;
    } finally {
      this.#policyRefs.forget();
    }
  }

  /**
   * The function, limited: each call is checked first, and throws RateLimited when it is denied. It waits for the delay of a
   * `leaky-bucket`. Units of a `concurrency` limit are held while the function runs, also when it ends with an error:
   * ```ts
   * const sendMail = limiter.wrap('5/minute', send, { key: (user) => user.id });
   * ```
   */
  wrap<This, A extends readonly unknown[], R>(
    policy: PolicyLike<Name>,
    fn: (this: This, ...args: A) => R,
    options: WrapOptions<A>,
  ): (this: This, ...args: A) => Promise<Awaited<R>> {
    const holds = (): boolean => this.#policyRefs.of(policy).holds;
    const limited = wrapped(this, policy, holds, fn, options);
    if (typeof options.priority === 'string') checkClass(options.priority, [this.#policyRefs.of(policy)], 'wrap');
    // A policy that is wrong throws here, and not at the first call.
    usePolicyIn(this, policy, `limiter.wrap of ${fn.name || 'a function'}`, limited);
    return limited;
  }

  /** Ends the limiter: calls that wait are rejected with a ClosedError, as every later call is, and holds and turns are given back. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // First, so that no caller that waits takes the units of the holds.
    const closed = this.#transport.close();
    await this.#holds.releaseAll();
    this.#policyRefs.forget();
    await closed;
  }

  /** What `await using` calls. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  static {
    isLocal = (limiter) => limiter.#isLocal;
    usePolicyIn = (limiter, policy, by, user) => limiter.#policyRefs.use(policy, by, user);
    samplesIn = (limiter, metric) => {
      limiter.#transport.countRepeated();
      return JSON.parse(limiter.#transport.nativeLimiter.samples(metric));
    };
    mayBeRefusedSince = (limiter, key, decision) =>
      limiter.#transport.nativeLimiter.mayBeRefusedSince(key, numbersOf(decision)[DecisionField.At]);
    generationOf = (limiter) => limiter.#policyRefs.reloads;
    policyRefIn = (limiter, policy) => limiter.#policyRefs.of(policy);
    checkIn = (limiter, policyRef, key, cost) => limiter.#callResolved(CallKind.Check, policyRef, key, cost);
    admitIn = async (limiter, checks, { meta, priority }, recordsSteps) => {
      const targets = limiter.#policyRefs.together(() =>
        checks.map(({ policy, key, cost }) => limiter.#target(policy, key, cost, meta, priority)),
      );
      const { decision, refusedBy, holds, steps } = await limiter.#transport.tasks.admit(targets, recordsSteps);
      const made = holds.map(([place, number]) => limiter.#holds.of(number, decision.decisions[place] ?? decision));
      return { decision, steps, refused: refusedBy !== undefined, holds: made };
    };
    checkAllIn = (limiter, checks) => {
      const targets = limiter.#policyRefs.together(() =>
        checks.map(({ policy, key, cost }) => limiter.#target(policy, key, cost)),
      );
      return limiter.#transport.checkAll(targets);
    };
    acquireIn = (limiter, policyRef, key, cost) => limiter.#transport.acquireAtOnce({ policyRef, key, cost });
    checkCostIn = (limiter, policyRef, cost) =>
      throwIfFailed(limiter.#transport.nativeLimiter.costError(policyRef.id, numberOf(cost), unitsOf(cost)));
  }
}

/** A wait of a hundred years ends as late as one without an end, and a store cannot add much more to its clock. */
const LONGEST_WAIT = 100 * 366 * 86_400_000;

/** A time to wait; undefined for one without an end. */
function finite(timeoutMs: number | undefined): number | undefined {
  return typeof timeoutMs === 'number' && timeoutMs > LONGEST_WAIT ? undefined : timeoutMs;
}
