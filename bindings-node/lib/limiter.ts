import { CallKind, TaskKind } from '../binding/index.js';
import { type Attempt, encodedMeta } from './attempt.js';
import type {
  AcquireOptions,
  CheckEntry,
  CheckOptions,
  CostOptions,
  HeldWork,
  HoldOptions,
  NamedCheckEntry,
  ObserveOptions,
  OverrideOptions,
  PeekOptions,
} from './call-options.js';
import { checkClass, checkEntriesOf, checkedOptions, holdArguments, onlyCost } from './call-options.js';
import { type Cost, checkedCost, isUnits, numberOf, type Units, unitsOf } from './cost.js';
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
import { type ActualCost, givenCosts, namesCost, settleable, settleEach, withNamedCosts } from './settled.js';
import type { Counters, MetricValue, Stats } from './stats.js';
import { StoreChangeReporter } from './store-changes.js';
import type { CallTarget } from './tasks.js';
import { type Answer, Transport } from './transport.js';
import { type WrapOptions, wrapped } from './wrap.js';

/** True if usage lives in this process alone. */
export let isLocal: (limiter: Limiter) => boolean;

/** Returns a policy as the limiter has resolved it. */
export let policyRefIn: (limiter: Limiter, policy: PolicyLike) => PolicyRef;

/** Checks a resolved policy. It returns an immediate answer without a promise, and throws an immediate error. */
export let checkIn: (limiter: Limiter, policyRef: PolicyRef, key: string, cost: Cost) => Answer;

/** Asks the policies of a request. It holds units of `concurrency` policies and checks all others. One refusal takes everything back. */
export let admitIn: (
  limiter: Limiter,
  checks: readonly PolicyCheck[],
  options: { readonly meta: string | Uint8Array | undefined; readonly priority: string | undefined },
  recordsSteps: boolean,
) => Promise<Admitted>;

/** Checks several policies, all or nothing. It answers as `checkIn` does. */
export let checkAllIn: (limiter: Limiter, checks: readonly PolicyCheck[]) => Answer;

/** The parts of a limiter that calls in other files use. */
export interface LimiterParts {
  readonly transport: Transport;
  readonly policyRefs: PolicyRefs;
  readonly holds: Holds;
  target(policy: PolicyLike, key: string, cost?: Cost, meta?: string | Uint8Array, priority?: string): CallTarget;
}

/** Returns the parts of a limiter. */
export let partsIn: (limiter: Limiter) => LimiterParts;

/** Throws if no call of a resolved policy can have this cost. */
export let checkCostIn: (limiter: Limiter, policyRef: PolicyRef, cost: Cost) => void;

/** Returns the share of each policy in a cost by units. A policy that counts none of the units has none. */
export let sharedCostIn: (
  limiter: Limiter,
  policyRefs: readonly PolicyRef[],
  units: Units,
) => (Cost | null | undefined)[];

/** Registers that `user` uses a policy, so that `reload` does not drop it. Errors call the user `by`. */
export let usePolicyIn: (limiter: Limiter, policy: PolicyLike, by: string, user: object) => void;

/** Returns the samples of a metric. Each has the name of the metric, the values of its labels, and its value. */
export let samplesIn: (limiter: Limiter, metric: string) => [string, string[], MetricValue][];

/** Returns a number that changes with each `reload`. */
export let generationOf: (limiter: Limiter) => number;

/** The policy file for the next constructor call. `fromFile` sets it, so that the signature shows users no parameter for it. */
let fileOfNext: string | undefined;

/**
 * Checks limits. Calls that wait at the same moment travel to Redis as one script call. Memory answers at once.
 *
 * ```ts
 * const limiter = new Limiter({ store: 'redis://127.0.0.1:6379', policies: { login: '20/minute; 5/3s' } });
 * const decision = await limiter.check('login', 'alice');
 * if (!decision.allowed) console.log(`wait ${decision.retryAfterMs} ms`);
 * ```
 *
 * If you give the policies in code, the type of the limiter knows their names. Then `check('lgoin', …)` does not compile, but a
 * notation or a Policy does. With `const limiter: Limiter = new Limiter(…)` you can pass any text.
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
  readonly #parts: LimiterParts;
  #closing: Promise<void> | undefined;

  /** Makes a limiter. It connects to its store at the first call. */
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
    // The core must see denials to count them for `tidegate top` and to log refusals.
    const isSeen = logRefusals === true || (process.env['TIDEGATE_TOP'] ?? '') !== '';
    this.#transport = new Transport(builder, clock, !isLocal && !isSeen);
    this.#denyCache = this.#transport.denyCache;
    this.#policyRefs = new PolicyRefs(this.#transport);
    this.#holds = new Holds(this.#transport.nativeLimiter, this.#transport.tasks, (decision, actualCost) =>
      this.settle(decision, actualCost),
    );
    this.#parts = {
      transport: this.#transport,
      policyRefs: this.#policyRefs,
      holds: this.#holds,
      target: (...given) => this.#target(...given),
    };
  }

  /** Makes the limiter that a policy file describes, with its policies, and its store and prefix unless you give others. */
  static async fromFile(path: string, options: LimiterOptions = {}): Promise<Limiter> {
    if (typeof path !== 'string')
      throw new ConfigError(`the path of a policy file must be a text, not ${describe(path)}`);
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

  #callResolved(kind: number, policyRef: PolicyRef, key: string, cost: unknown): Answer {
    if (typeof key !== 'string') throw invalidKey(key);
    if (typeof cost !== 'number') return this.#callOfUnits(kind, policyRef, key, cost);
    if (this.#denyCache !== undefined && kind === CallKind.Check) {
      const denial = this.#denyCache.find(policyRef, key, cost);
      if (denial !== undefined) return new Decision(policyRef, key, cost, denial);
    }
    return this.#transport.call(kind, policyRef, key, cost);
  }

  /** A call with numbers by the names of units crosses alone. */
  #callOfUnits(kind: number, policyRef: PolicyRef, key: string, cost: unknown): Answer {
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

  /** Asks and consumes in one atomic step. A denial is an answer, not an error. */
  check(policy: PolicyLike<Name>, key: string, options?: CheckOptions): Promise<Decision> {
    if (options === undefined) return this.#call(CallKind.Check, policy, key, 1);
    const cost = onlyCost(options);
    return cost === undefined ? this.#checkWith(policy, key, options) : this.#call(CallKind.Check, policy, key, cost);
  }

  async #checkWith(policy: PolicyLike, key: string, options: CheckOptions): Promise<Decision> {
    const { cost = 1, meta, partial = false, priority } = checkedOptions('check', options);
    const kind = partial ? CallKind.Take : CallKind.Check;
    if (meta === undefined && priority === undefined) return this.#call(kind, policy, key, cost);
    return this.#transport.callWith(kind, this.#target(policy, key, cost, meta, priority));
  }

  /** Asks without consuming. */
  peek(policy: PolicyLike<Name>, key: string, options?: PeekOptions): Promise<Decision> {
    if (options === undefined) return this.#call(CallKind.Peek, policy, key, 1);
    return this.#callWith(CallKind.Peek, 'peek', policy, key, options);
  }

  async #callWith(kind: number, call: string, policy: PolicyLike, key: string, given: PeekOptions): Promise<Decision> {
    const { cost, priority } = checkedOptions(call, given);
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

  /** Gives units back. It never fills a limit above full, so it creates no credit. */
  refund(policy: PolicyLike<Name>, key: string, options: CostOptions | number = 1): Promise<Decision> {
    if (typeof options === 'object' && isRecord(options))
      return this.#callWith(CallKind.Refund, 'refund', policy, key, options);
    return this.#call(CallKind.Refund, policy, key, options);
  }

  /**
   * Call it once, after the work. It charges or refunds the difference between the units that a check consumed and the
   * actual cost. A peek has consumed nothing, so a settle of its Decision charges the actual cost.
   */
  async settle(decision: Decision, actualCost: ActualCost): Promise<void> {
    const settle = async (entry: Decision, cost: Cost): Promise<unknown> => {
      const known = policyRefOf(entry);
      const policyRef = this.#policyRefs.of(known.given);
      return this.#transport.settle(policyRef, entry, policyRef !== known, cost);
    };
    const entries = settleable(decision, this.#policyRefs.identity);
    await settleEach(entries, this.#costsOf(entries, actualCost), settle);
  }

  #costsOf(entries: readonly Decision[], actual: ActualCost): readonly (Cost | null | undefined)[] {
    const [costs, names, isOne] = givenCosts(entries, actual);
    if (entries.length === 1 && costs.length === 1 && typeof costs[0] === 'number' && names === undefined) return costs;
    const charged = entries.map((entry) => {
      const { given, name } = policyRefOf(entry);
      const policy = this.#policyRefs.of(given).id;
      return { policy, given: typeof given === 'string' ? given : name, namesCost: namesCost(entry) };
    });
    return unwrap(this.#transport.nativeLimiter.costsOfEntries(charged, costs, names, isOne));
  }

  /**
   * Learns the limits of the other side from the response to a call. They hold for every process that uses the key, and
   * never admit a call earlier. `decision` is the Decision of that call. Units that were charged since then count in
   * addition to the usage in the response.
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
    return withNamedCosts(this.#transport.checkAll(this.#targets(all)), all);
  }

  /** Returns the targets of entries, which may name a class each, or have one together. */
  #targets(entries: readonly NamedCheckEntry[], common: Pick<CheckOptions, 'meta' | 'priority'> = {}): CallTarget[] {
    return this.#policyRefs.together(() =>
      entries.map(({ policy, key, cost, meta = common.meta, priority = common.priority }) =>
        this.#target(policy, key, cost, meta, priority),
      ),
    );
  }

  /** Waits until it is admitted, or returns a denied Decision if that is too late. Callers of one key are admitted in order. */
  async acquire(policy: PolicyLike<Name>, key: string, options: AcquireOptions = {}): Promise<Decision> {
    const { cost, timeoutMs, signal, meta, priority } = checkedOptions('acquire', options);
    const target = this.#target(policy, key, cost, meta, priority);
    // The task throws for a wrong timeout.
    if (!signal?.aborted && (timeoutMs ?? 0) >= 0) {
      const seen = await this.#transport.acquireAtOnce(target);
      if (seen?.allowed) return seen;
    }
    const { decision } = await this.#transport.tasks.about(TaskKind.Acquire, target, signal, timeoutMs);
    return decision as Decision;
  }

  /**
   * Takes units of a `concurrency` limit, runs the function and gives them back when it has ended or failed. They are
   * renewed until then. With `timeoutMs` it waits for room, behind all callers that wait for the key, and with
   * `Infinity` for as long as it takes. Throws RateLimited if there is no room. Without a function it returns the Hold
   * itself: `await using hold = await limiter.hold('exports', 'alice')`.
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
    const hold = await this.#holds.take(target, signal, timeoutMs);
    if (run === undefined) return hold;
    try {
      return await run(hold);
    } finally {
      await hold.release();
    }
  }

  /** Denies the key for that many milliseconds, regardless of its usage. */
  async block(policy: PolicyLike<Name>, key: string, ms: number): Promise<void> {
    if (typeof ms !== 'number') {
      throw new ConfigError(`the length of a block must be a number of milliseconds, not ${describe(ms)}`);
    }
    await this.#transport.tasks.about(TaskKind.Block, this.#target(policy, key), undefined, ms);
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
   * Gives a key other limits than its policy, for `ttlMs` or until you remove them. Pass a notation, a Limit, a list of
   * both, or a Policy (only its limits count). `'none'` means no limit, and `null` restores the limits of the policy. Other
   * processes have them within a second. Used units stay used for each limit of the same algorithm, period and unit.
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

  /** Returns the keys of a policy that `override` has given other limits, in the order of the keys. */
  async overrides(policy: PolicyLike): Promise<readonly OverriddenKey[]> {
    const { tasks, nativeLimiter } = this.#transport;
    const { id } = this.#policyRefs.of(policy);
    const { overrides } = await tasks.begin([], (ticket) => nativeLimiter.overrides(ticket, id));
    return (overrides ?? []).map(overriddenKeyFrom);
  }

  /** Returns the newest attempts, newest first. The policy needs a `journal`. */
  async journal(policy: PolicyLike<Name>, key: string): Promise<readonly Attempt[]> {
    return this.#transport.tasks.journal(this.#target(policy, key));
  }

  /** Forgets everything under the prefix: usage, blocks and journals. On Redis the time grows with the number of keys. */
  async clearAll(): Promise<void> {
    await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.clearAll(ticket));
  }

  /** Resolves when the store answers, and rejects with the reason if it does not. */
  async ping(): Promise<void> {
    await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.ping(ticket));
  }

  /** Returns the policy that a call would apply. */
  policy(policy: PolicyLike<Name>): Policy {
    return policyFrom(unwrap(this.#transport.nativeLimiter.policy(this.#policyRefs.of(policy).id)));
  }

  /** Returns the number of this limiter's callers that wait for a key, in `acquire` or for a hold. */
  waiting(policy: PolicyLike<Name>, key: string): number {
    const { policyRef } = this.#target(policy, key);
    checkConstant(key, 'a key');
    return this.#transport.nativeLimiter.waiting(policyRef.id, key);
  }

  /** Moves that percentage of the keys to the new store of a `rollout`, from the next call on. */
  setRollout(percent: number): void {
    checkPercent(percent);
    // Earlier calls still go to the store that they were made for.
    this.#transport.flush();
    throwIfFailed(this.#transport.nativeLimiter.setRollout(percent));
    // Denials of the other store are not repeated from now on.
    this.#transport.collect();
  }

  /** Returns the counts since the limiter was made. */
  counters(): Counters {
    this.#transport.countRepeated();
    return JSON.parse(this.#transport.nativeLimiter.counters()) as Counters;
  }

  /** Returns the Decisions by policy and the calls to the store, as numbers for an exporter of metrics. */
  stats(): Stats {
    this.#transport.countRepeated();
    return JSON.parse(this.#transport.nativeLimiter.stats()) as Stats;
  }

  /** Loads the changed policy file, as a whole or not at all. Policies that you gave in code stay. */
  async reload(): Promise<void> {
    try {
      await this.#transport.tasks.begin([], (ticket) => this.#transport.nativeLimiter.reload(ticket));
      this.#policyRefs.reloads++;
    } finally {
      this.#policyRefs.forget();
    }
  }

  /**
   * Returns the function with a limit. Each call is checked first, and throws RateLimited if it is denied. It waits for the
   * delay of a `leaky-bucket`. Units of a `concurrency` limit are held until the function ends or fails:
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

  /** Closes the limiter. Waiting calls and every later call reject with a ClosedError, and holds and turns are given back. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // The transport closes first, so that no waiting caller takes the units of the holds.
    const closed = this.#transport.close();
    await this.#holds.releaseAll();
    this.#policyRefs.forget();
    await closed;
  }

  /** Closes the limiter at the end of an `await using` block. */
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
    generationOf = (limiter) => limiter.#policyRefs.reloads;
    policyRefIn = (limiter, policy) => limiter.#policyRefs.of(policy);
    checkIn = (limiter, policyRef, key, cost) => limiter.#callResolved(CallKind.Check, policyRef, key, cost);
    admitIn = async (limiter, checks, common, recordsSteps) => {
      const targets = limiter.#targets(checks, common);
      const { decision, refusedBy, holds, steps } = await limiter.#transport.tasks.admit(targets, recordsSteps);
      const made = holds.map(([place, number]) => limiter.#holds.of(number, decision.decisions[place] ?? decision));
      return { decision, steps, refused: refusedBy !== undefined, holds: made };
    };
    checkAllIn = (limiter, checks) => limiter.#transport.checkAll(limiter.#targets(checks));
    partsIn = (limiter) => limiter.#parts;
    sharedCostIn = (limiter, policyRefs, units) => {
      const ids = policyRefs.map(({ id }) => id);
      return unwrap(limiter.#transport.nativeLimiter.sharedCost(ids, units));
    };
    checkCostIn = (limiter, policyRef, cost) =>
      throwIfFailed(limiter.#transport.nativeLimiter.costError(policyRef.id, numberOf(cost), unitsOf(cost)));
  }
}

/** Throws if options of a place have a wrong limiter, or a prefix that is no text. */
export function checkTarget({ limiter, prefix }: { limiter: unknown; prefix?: unknown }, where: string): void {
  if (!(limiter instanceof Limiter))
    throw new ConfigError(`${where}: the option limiter must be a Limiter of tidegate`);
  if (prefix !== undefined && typeof prefix !== 'string') {
    throw new ConfigError(`${where}: the option prefix must be a text, not ${describe(prefix)}`);
  }
}
