// Limits the requests of a framework. It knows no framework: an adapter calls it and writes the responses.

import { Admission } from './admission.js';
import { keysOf } from './keys.js';
import { type RateLimitOptions, Settings } from './rate-limit-options.js';
import type { Awaitable, RequestAdapter } from './request-adapter.js';

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

  constructor(adapter: RequestAdapter<Request>, options: RateLimitOptions<Request, Response>, route?: string) {
    this.settings = new Settings(options, adapter, () => keysOf(adapter).clientIp(), route);
  }

  /**
   * Checks a request; undefined when it is not limited. An admission that is there at once is returned without a promise, and
   * an error that is found at once is thrown.
   */
  admit(request: Request): Awaitable<Admission<Request, Response> | undefined> {
    const { adapter, methods, only } = this.settings;
    if (methods !== undefined && !methods.has(adapter.method(request))) return undefined;
    if (only === undefined) return this.#admit(request);
    const key = only.key(request);
    const admission = this.#admission(request);
    return typeof key === 'string' ? admission.checkOne(only, key) : key.then((key) => admission.checkOne(only, key));
  }

  async #admit(request: Request): Promise<Admission<Request, Response> | undefined> {
    const { settings } = this;
    const { skip } = settings.options;
    if (skip !== undefined && (await skip(request))) return undefined;
    const admission = this.#admission(request);
    await admission.check(settings.entries ?? (await settings.entriesOf(request)));
    return admission;
  }

  #admission(request: Request): Admission<Request, Response> {
    const memory = memoryOf<Request, Response>(this.settings.adapter, request);
    const admission = new Admission(this.settings, request, memory[ADMISSION]);
    memory[ADMISSION] = admission;
    return admission;
  }
}

/** The admission of the last middleware that a request has passed. */
export function latestAdmission<Request extends object, Response>(
  adapter: RequestAdapter<Request>,
  request: Request,
): Admission<Request, Response> | undefined {
  return memoryOf<Request, Response>(adapter, request)[ADMISSION];
}
