import { ConfigError, describe } from './errors.js';
import { kept } from './kept.js';

/** A signal that cancels a call. You can pass an `AbortSignal` of the platform. Only this part of it is used. */
export interface CancelSignal {
  readonly aborted: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: so the platform declares it
  readonly reason: any;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** The waits that a signal ends. They share one listener, because Node warns if a signal has more than ten. */
class SharedListener {
  readonly #waits = new Set<() => void>();
  readonly #abort = (): void => {
    for (const end of [...this.#waits]) end();
  };

  constructor(private readonly signal: CancelSignal) {}

  add(end: () => void): () => void {
    if (this.#waits.size === 0) this.signal.addEventListener('abort', this.#abort);
    this.#waits.add(end);
    return () => {
      if (this.#waits.delete(end) && this.#waits.size === 0) this.signal.removeEventListener('abort', this.#abort);
    };
  }
}

const listeners = new WeakMap<CancelSignal, SharedListener>();

/** Calls `end` when the signal is aborted. Returns a function that stops listening. */
export function onAbort(signal: CancelSignal, end: () => void): () => void {
  return kept(listeners, signal, () => new SharedListener(signal)).add(end);
}

/** Throws if the value is no signal. */
export function checkSignal(signal: CancelSignal): void {
  const { aborted, addEventListener, removeEventListener } = (signal ?? {}) as Partial<CancelSignal>;
  const listens = typeof addEventListener === 'function' && typeof removeEventListener === 'function';
  if (typeof aborted !== 'boolean' || !listens) {
    throw new ConfigError(`signal must be an AbortSignal, such as controller.signal, not ${describe(signal)}`);
  }
}
