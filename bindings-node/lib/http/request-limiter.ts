// Limits the requests of a framework. It knows no framework: an adapter calls it and writes the responses.

import { Admission } from './admission.js';
import { keysOf } from './keys.js';
import { asError } from './refusal.js';
import type { Awaitable, RequestAdapter } from './request-adapter.js';
import { type FixedCostEntry, type LimitParts, Settings } from './settings.js';

/** Where a request remembers its admissions. The same symbol for all copies of this module. */
const ADMISSION = Symbol.for('tidegate.admission');

interface Memory<Request extends object, Response> {
  [ADMISSION]?: Admission<Request, Response>;
}

function memoryOf<Request extends object, Response>(
  adapter: RequestAdapter<Request>,
  request: Request,
): Memory<Request, Response> {
  return adapter.memory === undefined ? request : adapter.memory(request);
}

/** Checks requests before their handlers run. */
export class RequestLimiter<Request extends object, Response> {
  readonly settings: Settings<Request, Response>;

  constructor(adapter: RequestAdapter<Request>, parts: LimitParts<Request, Response>) {
    this.settings = new Settings(parts, adapter, () => keysOf(adapter).clientIp());
  }

  /**
   * Checks a request; undefined when it is not limited. An admission that is there at once is returned without a promise, and
   * an error that is found at once is thrown. `memory` is what remembers the admission, where it is not the request.
   */
  admit(request: Request, memory?: object): Awaitable<Admission<Request, Response> | undefined> {
    const { adapter, enabled, methods, only } = this.settings;
    if (!enabled || (methods !== undefined && !isOneOf(methods, adapter.method(request)))) return undefined;
    if (only === undefined) return this.#admit(request, memory);
    try {
      const key = only.key(request);
      if (typeof key !== 'string') return key.then((key) => this.#admitOne(only, request, key, memory), this.#fail);
      return this.#admitOne(only, request, key, memory);
    } catch (reason) {
      return this.#fail(reason);
    }
  }

  readonly #fail = (reason: unknown): never => {
    throw asError(reason, this.settings.adapter.name);
  };

  #admitOne(
    only: FixedCostEntry<Request>,
    request: Request,
    key: string,
    memory: object | undefined,
  ): Awaitable<Admission<Request, Response>> {
    const counted = this.settings.counted(only, request, key);
    return this.#admission(request, memory).checkOne(only, counted);
  }

  async #admit(request: Request, memory: object | undefined): Promise<Admission<Request, Response> | undefined> {
    const { settings } = this;
    try {
      for (const skip of settings.skips) {
        if (await skip(request)) return undefined;
      }
      const entries = settings.entries ?? (await settings.entriesOf(request));
      if (entries.length === 0) return undefined;
      const admission = this.#admission(request, memory);
      await admission.check(entries);
      return admission;
    } catch (reason) {
      return this.#fail(reason);
    }
  }

  #admission(request: Request, given: object | undefined): Admission<Request, Response> {
    const memory = (given as Memory<Request, Response>) ?? memoryOf<Request, Response>(this.settings.adapter, request);
    const admission = new Admission(this.settings, request, memory[ADMISSION]);
    memory[ADMISSION] = admission;
    return admission;
  }
}

/** Whether a request is of one of these methods. Messages that are no requests of HTTP have none. */
function isOneOf(methods: ReadonlySet<string>, method: string): boolean {
  return method === '' || methods.has(method);
}

/** The admission of the last middleware that a request has passed. */
export function latestAdmission<Request extends object, Response>(
  adapter: RequestAdapter<Request>,
  request: Request,
): Admission<Request, Response> | undefined {
  return memoryOf<Request, Response>(adapter, request)[ADMISSION];
}
