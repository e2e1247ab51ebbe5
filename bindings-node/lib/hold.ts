// With this reference, projects need not name the library for `await using`.
/// <reference lib="esnext.disposable" preserve="true" />

import { TaskKind } from '../binding/index.js';
import type { CancelSignal } from './cancel-signal.js';
import type { Cost } from './cost.js';
import type { Decision } from './decision.js';
import type { binding } from './native.js';
import type { PolicyLike } from './policy.js';
import { RateLimited } from './rate-limited.js';
import type { AdmissionAnswer, CallTarget, Tasks } from './tasks.js';

/** Units of a `concurrency` limit. They are renewed until you give them back: by `release`, by `await using`, or by `close`. */
export class Hold implements AsyncDisposable {
  /** The Decision that admitted it. */
  readonly decision: Decision;
  readonly #isLost: () => boolean;
  readonly #settle: (actualCost: Cost) => Promise<void>;
  #giveBack: (() => Promise<void>) | undefined;
  #released: Promise<void> | undefined;
  /** True if it was lost when it was given back. */
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

  /** True if the units were given back. */
  get released(): boolean {
    return this.#giveBack === undefined;
  }

  /**
   * True if you can no longer rely on the units, because others may have them: the store no longer has the hold, or no
   * renewal has succeeded for its ttl. A lost hold stays lost. A failed renewal is logged, counted and tried again. If
   * that succeeds in time, the hold is not lost.
   */
  get lost(): boolean {
    return this.released ? this.#wasLost : this.#isLost();
  }

  /**
   * Call it once, after the work. It charges or refunds the difference between the charge of the other limits and the actual
   * cost, a number or numbers by the names of units. Units that you do not name stay as they are, and so do the held units.
   */
  settle(actualCost: Cost): Promise<void> {
    return this.#settle(actualCost);
  }

  /**
   * Gives the units back. If the store cannot be reached, they come back at the end of their ttl. A second call does
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

  /** Gives the units back at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}

/** The holds of a limiter that were not given back. */
export class Holds {
  readonly #open = new Set<Hold>();

  constructor(
    private readonly nativeLimiter: binding.NativeLimiter,
    private readonly tasks: Tasks,
    private readonly settle: (decision: Decision, actualCost: Cost) => Promise<void>,
  ) {}

  /** Takes units, or throws RateLimited if there is no room in time. Without `timeoutMs` it waits for as long as it takes. */
  async take(target: CallTarget, signal: CancelSignal | undefined, timeoutMs: number | undefined): Promise<Hold> {
    const { decision, hold: number } = await this.tasks.about(TaskKind.Hold, target, signal, timeoutMs);
    if (number === undefined) throw new RateLimited(decision as Decision);
    return this.of(number, decision as Decision);
  }

  /** Returns the hold of that number and remembers it. */
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

/** The result of the limits of a request. */
export interface Admitted extends Pick<AdmissionAnswer, 'decision' | 'steps'> {
  /** True if a policy refused. */
  readonly refused: boolean;
  readonly holds: readonly Hold[];
}
