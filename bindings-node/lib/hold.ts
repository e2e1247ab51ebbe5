import type { Decision } from './decision.js';

/** Units of a `concurrency` limit, renewed until they are given back: by `release`, by `await using`, or by `close`. */
export class Hold implements AsyncDisposable {
  /** The Decision that let it in. */
  readonly decision: Decision;
  #back: (() => Promise<void>) | undefined;
  #released: Promise<void> | undefined;

  /** @internal */
  constructor(decision: Decision, back: () => Promise<void>) {
    this.decision = decision;
    this.#back = back;
  }

  /** Whether the units were given back. */
  get released(): boolean {
    return this.#back === undefined;
  }

  /** Gives the units back; when the store cannot be reached they come back with their ttl. Again it does nothing. */
  release(): Promise<void> {
    if (this.#back !== undefined) {
      this.#released = this.#back();
      this.#back = undefined;
    }
    return this.#released ?? Promise.resolve();
  }

  /** What `await using` calls. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
