import { type Attempt, attempt } from './attempt.js';
import type {
  AcquireOptions,
  CheckEntry,
  CheckOptions,
  CostOptions,
  HoldOptions,
  WrapOptions,
} from './call-options.js';
import type { Counters } from './counters.js';
import { chargedOf, type Decision, type PolicyRef, policyRefOf, sourceOf } from './decision.js';
import { DenyCache } from './deny-cache.js';
import { ConfigError, noCost, noKey, shown } from './errors.js';
import { Hold } from './hold.js';
import { type LimiterOptions, opening } from './limiter-options.js';
import { done, unwrap, WATCHES } from './native.js';
import { fromPolicy, type Policy, type PolicyLike } from './policy.js';
import { PolicyRefs } from './policy-refs.js';
import { RateLimited } from './rate-limited.js';
import { StoreChangeReporter } from './store-changes.js';
import { CHARGE, CHECK, type Entry, PEEK, REFUND, SETTLE, Transport } from './transport.js';

const bytes = new TextEncoder();

/** Whether usage lives in this process alone. */
export let isLocal: (limiter: Limiter) => boolean;

/** What a limiter knows of a policy. */
export let policyRefIn: (limiter: Limiter, policy: PolicyLike) => PolicyRef;

/** A check about what was looked up already; its answer is no promise where it is at hand. Throws what is wrong with it. */
export let checkIn: (limiter: Limiter, policyRef: PolicyRef, key: string, cost: number) => Decision | Promise<Decision>;

/** The file of a limiter that `fromFile` makes: its own way in, so that the constructor keeps one argument. */
let fileOfNext: string | undefined;

/**
 * Checks limits. What waits at the same moment travels to Redis as one call; memory answers on the way.
 *
 * ```ts
 * const limiter = new Limiter({ store: 'redis://127.0.0.1:6379', policies: { login: '20/minute; 5/3s' } });
 * const decision = await limiter.check('login', 'alice');
 * if (!decision.allowed) console.log(`wait ${decision.retryAfterMs} ms`);
 * ```
 *
 * An open limiter does not keep the process alive; calls that wait for an answer do.
 */
export class Limiter {
  readonly #transport: Transport;
  readonly #denyCache: DenyCache | undefined;
  readonly #holds = new Set<Hold>();
  readonly #local: boolean;
  readonly #watch: StoreChangeReporter;
  readonly #policyRefs: PolicyRefs;
  #closing: Promise<void> | undefined;

  /** A limiter. Nothing is connected before the first call. */
  constructor(options: LimiterOptions = {}) {
    const file = fileOfNext;
    fileOfNext = undefined;
    const made = opening(options, file);
    const { clock, logger, onChange } = options;
    const local = made.isLocal();
    this.#local = local;
    this.#watch = new StoreChangeReporter(logger, onChange);
    if (!local) {
      // The native side holds what it calls for as long as it lives: if that held us, neither would ever be collected.
      const watch = new WeakRef(this.#watch);
      made.onChange((change) => watch.deref()?.tell(change));
    }
    // Memory knows at once that a key is still denied.
    this.#denyCache = local ? undefined : new DenyCache(clock);
    this.#transport = new Transport(
      (asks, units, answers, bell) => unwrap(made.open(asks, units, answers, bell, WATCHES)),
      local || clock !== undefined,
      this.#denyCache,
    );
    this.#policyRefs = new PolicyRefs(this.#transport, this.#denyCache);
  }

  /** The limiter that a policy file describes: its policies, and its store unless another is given. */
  static async fromFile(path: string, options: LimiterOptions = {}): Promise<Limiter> {
    if (typeof path !== 'string') throw new ConfigError(`a policy file cannot be ${shown(path)}: give its path`);
    fileOfNext = path;
    try {
      return new Limiter(options);
    } finally {
      fileOfNext = undefined;
    }
  }

  #ask(what: number, policy: PolicyLike, key: string, cost: number, charged = 0): Promise<Decision> {
    try {
      return Promise.resolve(this.#askAbout(what, this.#policyRefs.of(policy), key, cost, charged));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** The answer itself where it is at hand. */
  #askAbout(
    what: number,
    policyRef: PolicyRef,
    key: string,
    cost: number,
    charged: number,
  ): Decision | Promise<Decision> {
    if (typeof key !== 'string') throw noKey(key);
    if (typeof cost !== 'number') throw noCost(cost);
    if (this.#denyCache !== undefined) {
      if (what === CHECK) {
        const known = this.#denyCache.find(policyRef, key, cost);
        if (known !== undefined) return this.#transport.known(policyRef, key, cost, known);
      } else if (what > PEEK) {
        return this.#giving(key, this.#transport.ask(what, policyRef, key, cost, charged));
      }
    }
    return this.#transport.ask(what, policyRef, key, cost, charged);
  }

  /** Before and after something may be given back to a key, nothing is known of it. */
  async #giving<T>(key: string, call: T | Promise<T>): Promise<T> {
    const denied = this.#denyCache;
    if (denied === undefined) return call;
    denied.forget(key);
    try {
      return await call;
    } finally {
      denied.forget(key);
    }
  }

  #entry(policy: PolicyLike, key: string, cost: number): Entry {
    const policyRef = this.#policyRefs.of(policy);
    // A text crosses whole here, and half a surrogate pair would become another character on the way.
    if (typeof key !== 'string' || !key.isWellFormed()) throw noKey(key);
    if (typeof cost !== 'number') throw noCost(cost);
    return { policyRef, key, cost };
  }

  /** Asks and consumes, in one atomic step. A denial is an answer, not an error. */
  check(policy: PolicyLike, key: string, options?: CheckOptions): Promise<Decision> {
    if (options === undefined) return this.#ask(CHECK, policy, key, 1);
    const { cost = 1, meta } = options;
    if (meta !== undefined) return this.#note(policy, key, cost, meta);
    return this.#ask(CHECK, policy, key, cost);
  }

  async #note(policy: PolicyLike, key: string, cost: number, meta: string | Uint8Array): Promise<Decision> {
    const { policyRef } = this.#entry(policy, key, cost);
    const said = typeof meta === 'string' ? bytes.encode(meta) : meta;
    if (!(said instanceof Uint8Array)) throw new ConfigError(`meta cannot be ${shown(meta)}: give text or bytes`);
    const { channel } = this.#transport;
    return this.#transport.single(policyRef, key, cost, (ticket) =>
      channel.note(ticket, policyRef.number, key, cost, said),
    );
  }

  /** Asks without consuming. */
  peek(policy: PolicyLike, key: string, options?: CostOptions): Promise<Decision> {
    const answer = this.#ask(PEEK, policy, key, options?.cost === undefined ? 1 : options.cost);
    // What is admitted now is denied no more, whoever gave it back.
    return this.#denyCache?.knows(key) ? this.#looked(key, answer) : answer;
  }

  async #looked(key: string, answer: Promise<Decision>): Promise<Decision> {
    const decision = await answer;
    if (decision.allowed) this.#denyCache?.forget(key);
    return decision;
  }

  /** Consumes even past the limit: windows count it, buckets go into debt. */
  charge(policy: PolicyLike, key: string, cost: number): Promise<Decision> {
    return this.#ask(CHARGE, policy, key, cost);
  }

  /** Gives units back; never above full, never creates credit. */
  refund(policy: PolicyLike, key: string, options?: CostOptions | number): Promise<Decision> {
    const cost = typeof options === 'object' && options !== null ? options.cost : options;
    return this.#ask(REFUND, policy, key, cost === undefined ? 1 : cost);
  }

  /** After the work: charges or refunds the difference between what a check consumed and what it should have. */
  async settle(decision: Decision, actualCost: number): Promise<void> {
    const each = decision.decisions.length === 0 ? [decision] : decision.decisions;
    await Promise.all(
      each.map((one) => this.#ask(SETTLE + sourceOf(one), policyRefOf(one).given, one.key, actualCost, chargedOf(one))),
    );
  }

  /** Checks several policies and keys: all are charged, or none is. */
  async checkAll(entries: Iterable<CheckEntry>): Promise<Decision> {
    const all = Array.from(entries, ([policy, key, cost = 1]) => this.#entry(policy, key, cost));
    const { channel } = this.#transport;
    const said = await this.#transport.task(all, (ticket) =>
      channel.checkAll(
        ticket,
        all.map((entry) => entry.policyRef.number),
        all.map((entry) => entry.key),
        all.map((entry) => entry.cost),
      ),
    );
    return said.decision as Decision;
  }

  /**
   * Waits until it is admitted; a denied Decision when it cannot be in time. Those who wait for the same key are admitted
   * in the order they came.
   */
  async acquire(policy: PolicyLike, key: string, options: AcquireOptions = {}): Promise<Decision> {
    const { cost = 1, timeoutMs = Number.POSITIVE_INFINITY, signal } = options;
    const entry = this.#entry(policy, key, cost);
    if (typeof timeoutMs !== 'number') {
      throw new ConfigError(`timeoutMs cannot be ${shown(timeoutMs)}: it must be a number of milliseconds`);
    }
    const patience = timeoutMs === Number.POSITIVE_INFINITY ? null : timeoutMs;
    const { channel } = this.#transport;
    const said = await this.#transport.task(
      [entry],
      (ticket) => channel.acquire(ticket, entry.policyRef.number, key, cost, patience),
      signal,
    );
    return said.decision as Decision;
  }

  /**
   * Takes units of a `concurrency` limit, runs the function and gives them back when it has ended, however it ends. They
   * are renewed until then. Throws RateLimited when there is no room. Without a function the Hold itself is the answer:
   * `await using hold = await limiter.hold('exports', 'alice')`.
   */
  hold<T>(policy: PolicyLike, key: string, work: (hold: Hold) => Promise<T> | T): Promise<T>;
  hold<T>(policy: PolicyLike, key: string, options: HoldOptions, work: (hold: Hold) => Promise<T> | T): Promise<T>;
  hold(policy: PolicyLike, key: string, options?: HoldOptions): Promise<Hold>;
  async hold<T>(
    policy: PolicyLike,
    key: string,
    options?: HoldOptions | ((hold: Hold) => Promise<T> | T),
    work?: (hold: Hold) => Promise<T> | T,
  ): Promise<T | Hold> {
    const todo = typeof options === 'function' ? options : work;
    const { cost = 1, signal } = typeof options === 'object' && options !== null ? options : {};
    const hold = await this.#hold(this.#entry(policy, key, cost), signal);
    if (todo === undefined) return hold;
    try {
      return await todo(hold);
    } finally {
      await hold.release();
    }
  }

  async #hold(entry: Entry, signal: AbortSignal | undefined): Promise<Hold> {
    const { channel } = this.#transport;
    const { policyRef, key, cost } = entry;
    const said = await this.#transport.task(
      [entry],
      (ticket) => channel.hold(ticket, policyRef.number, key, cost),
      signal,
    );
    const decision = said.decision as Decision;
    const { hold: number } = said;
    if (number === undefined) throw new RateLimited(decision);
    const hold = new Hold(decision, async () => {
      this.#holds.delete(hold);
      await this.#transport.task([], (ticket) => channel.release(ticket, number));
    });
    this.#holds.add(hold);
    return hold;
  }

  /** Does what only has to be done. */
  async #do(policy: PolicyLike, key: string, begin: (ticket: number, policyRef: number) => number): Promise<void> {
    const entry = this.#entry(policy, key, 1);
    await this.#giving(
      key,
      this.#transport.task([entry], (ticket) => begin(ticket, entry.policyRef.number)),
    );
  }

  /** Denies the key for that many milliseconds, whatever its usage. */
  block(policy: PolicyLike, key: string, ms: number): Promise<void> {
    if (typeof ms !== 'number') return Promise.reject(new ConfigError(`a block cannot last ${shown(ms)} milliseconds`));
    return this.#do(policy, key, (ticket, policyRef) => this.#transport.channel.block(ticket, policyRef, key, ms));
  }

  /** Ends a block. */
  unblock(policy: PolicyLike, key: string): Promise<void> {
    return this.#do(policy, key, (ticket, policyRef) => this.#transport.channel.unblock(ticket, policyRef, key));
  }

  /** Forgets a key's usage and ends its block. Its journal stays. */
  clear(policy: PolicyLike, key: string): Promise<void> {
    return this.#do(policy, key, (ticket, policyRef) => this.#transport.channel.clear(ticket, policyRef, key));
  }

  /** The newest attempts, newest first, of a policy with a `journal`. */
  async journal(policy: PolicyLike, key: string): Promise<readonly Attempt[]> {
    const entry = this.#entry(policy, key, 1);
    const { channel } = this.#transport;
    const said = await this.#transport.task([entry], (ticket) => channel.journal(ticket, entry.policyRef.number, key));
    return (said.attempts ?? []).map(attempt);
  }

  /** Whether the store answers; throws what is wrong when it does not. */
  async ping(): Promise<void> {
    const { channel } = this.#transport;
    await this.#transport.task([], (ticket) => channel.ping(ticket));
  }

  /** The policy that a call would apply. */
  policy(policy: PolicyLike): Policy {
    return fromPolicy(unwrap(this.#transport.channel.policy(this.#policyRefs.of(policy).number)));
  }

  /** How many of this limiter's callers wait for a key in `acquire`. */
  waiting(policy: PolicyLike, key: string): number {
    const { policyRef } = this.#entry(policy, key, 1);
    return this.#transport.channel.waiting(policyRef.number, key);
  }

  /** Of a limiter with a `rollout`: so many percent of the keys use the new store from the next call on. */
  setRollout(percent: number): void {
    if (typeof percent !== 'number') {
      throw new ConfigError(`a rollout of ${shown(percent)} percent cannot be: give a number from 0 to 100`);
    }
    // What was asked before is asked where it would have been.
    this.#transport.flush();
    done(this.#transport.channel.setRollout(percent));
    this.#denyCache?.forgetAll();
  }

  /** What was counted since the limiter was made. */
  counters(): Counters {
    const counted = this.#transport.channel.counters();
    return { ...counted, denyCache: counted.denyCache + (this.#denyCache?.repeated ?? 0) };
  }

  /** Takes the changed policy file, as a whole or not at all. */
  async reload(): Promise<void> {
    const { channel } = this.#transport;
    try {
      await this.#transport.task([], (ticket) => channel.reload(ticket));
    } finally {
      this.#policyRefs.forget();
    }
  }

  /**
   * The function, limited: each call is checked first, and throws RateLimited when it is denied.
   *
   * ```ts
   * const sendMail = limiter.wrap('5/minute', send, { key: (user) => user.id });
   * ```
   */
  wrap<This, A extends readonly unknown[], R>(
    policy: PolicyLike,
    fn: (this: This, ...args: A) => R,
    options: WrapOptions<A>,
  ): (this: This, ...args: A) => Promise<Awaited<R>> {
    const { key, cost = 1 } = options;
    const limiter = this;
    const wrapped = async function (this: This, ...args: A): Promise<Awaited<R>> {
      const decision = await limiter.check(policy, typeof key === 'function' ? key(...args) : key, {
        cost: typeof cost === 'function' ? cost(...args) : cost,
      });
      if (!decision.allowed) throw new RateLimited(decision);
      return await fn.apply(this, args as never);
    };
    return Object.defineProperty(wrapped, 'name', { value: fn.name });
  }

  /** Ends the limiter: holds are given back, what waits is settled, and every later call throws ClosedError. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await Promise.allSettled(Array.from(this.#holds, (hold) => hold.release()));
    this.#policyRefs.forget();
    await this.#transport.close();
  }

  /** What `await using` calls. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  static {
    isLocal = (limiter) => limiter.#local;
    policyRefIn = (limiter, policy) => limiter.#policyRefs.of(policy);
    checkIn = (limiter, policyRef, key, cost) => limiter.#askAbout(CHECK, policyRef, key, cost, 0);
  }
}
