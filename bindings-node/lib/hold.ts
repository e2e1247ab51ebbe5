// So that projects need not name this library for `await using`.
/// <reference lib="esnext.disposable" preserve="true" />

import { TaskKind } from '../binding/index.js';
import type { CancelSignal } from './cancel-signal.js';
import type { Cost } from './cost.js';
import type { Decision } from './decision.js';
import type { native } from './native.js';
import type { PolicyLike } from './policy.js';
import { RateLimited } from './rate-limited.js';
import type { AdmissionAnswer, CallTarget, Tasks } from './tasks.js';

/** Units of a `concurrency` limit, renewed until they are given back: by `release`, by `await using`, or by `close`. */
export class Hold implements AsyncDisposable {
  /** The Decision that admitted it. */
  readonly decision: Decision;
  readonly #isLost: () => boolean;
  readonly #settle: (actualCost: Cost) => Promise<void>;
  #giveBack: (() => Promise<void>) | undefined;
  #released: Promise<void> | undefined;
  /** Whether it was lost when it was given back. */
  #wasLost = false;

  /** @internal */
  constructor(
    decision: Decision,
    giveBack: () => Promise<void>,
    isLost: () => boolean,
    settle: (actualCost: Cost) => Promise<void>,
  ) {
    this.decision = decision;
    this.#settle = settle;
    this.#giveBack = giveBack;
    this.#isLost = isLost;
  }

  /** Whether the units were given back. */
  get released(): boolean {
    return this.#giveBack === undefined;
  }

  /**
   * Whether the units cannot be relied on any more: the store answered a renewal that it does not have the hold, or no renewal
   * has succeeded for its ttl, so that others may have its units. It stays so. A renewal that fails is logged, counted and
   * tried again; when it succeeds in time the hold is not lost.
   */
  get lost(): boolean {
    return this.released ? this.#wasLost : this.#isLost();
  }

  /**
   * After the work: charges or refunds the difference between what the other limits were charged and the actual cost, once: a
   * number, or numbers by the names of units. Those that it does not name stay as they are, and so does what is held.
   */
  settle(actualCost: Cost): Promise<void> {
    return this.#settle(actualCost);
  }

  /**
   * Gives the units back. When the store cannot be reached, they come back at the end of their ttl. A second call does
   * nothing.
   */
  release(): Promise<void> {
    if (this.#giveBack !== undefined) {
      this.#wasLost = this.#isLost();
      this.#released = this.#giveBack();
      this.#giveBack = undefined;
    }
    return this.#released ?? Promise.resolve();
  }

  /** What `await using` calls. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}

/** The holds of a limiter that were not given back. */
export class Holds {
  readonly #open = new Set<Hold>();

  constructor(
    private readonly nativeLimiter: native.NativeLimiter,
    private readonly tasks: Tasks,
    private readonly settle: (decision: Decision, actualCost: Cost) => Promise<void>,
  ) {}

  /** Takes units, or throws RateLimited when there is no room in time; without `timeoutMs` it waits for as long as it takes. */
  async take(target: CallTarget, signal: CancelSignal | undefined, timeoutMs: number | undefined): Promise<Hold> {
    const { decision, hold: number } = await this.tasks.about(TaskKind.Hold, target, signal, timeoutMs);
    if (number === undefined) throw new RateLimited(decision as Decision);
    return this.of(number, decision as Decision);
  }

  /** The hold of that number, which is kept. */
  of(number: number, decision: Decision): Hold {
    const giveBack = async (): Promise<void> => {
      this.#open.delete(hold);
      await this.tasks.begin([], (ticket) => this.nativeLimiter.release(ticket, number));
    };
    const isLost = (): boolean => this.nativeLimiter.isLost(number);
    const settle = (actualCost: Cost): Promise<void> => this.settle(hold.decision, actualCost);
    const hold = new Hold(decision, giveBack, isLost, settle);
    this.#open.add(hold);
    return hold;
  }

  /** Gives all holds back. */
  async releaseAll(): Promise<void> {
    await Promise.allSettled(Array.from(this.#open, (hold) => hold.release()));
  }
}

/** A policy of a request with its key and its cost. */
export interface PolicyCheck {
  readonly policy: PolicyLike;
  readonly key: string;
  readonly cost: Cost;
}

/** What the limits of a request come to. */
export interface Admitted extends Pick<AdmissionAnswer, 'decision' | 'steps'> {
  /** True where a policy refused. */
  readonly refused: boolean;
  readonly holds: readonly Hold[];
}
