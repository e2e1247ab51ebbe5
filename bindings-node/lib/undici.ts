// An interceptor of undici that makes requests wait for their turn.
//
//     import { Agent, interceptors } from 'undici';
//     import { paced } from 'tidegate/undici';
//
//     const dispatcher = new Agent().compose(paced({ limiter, policy: '80/minute' }), interceptors.redirect({ maxRedirections: 5 }));
//
// undici runs the interceptor that is named last first. The calls of interceptors behind `paced` are paced, so each redirect waits,
// is charged and observed under its own origin.

import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import {
  type Answer,
  type Exchange,
  isRepeatable,
  type MadeFor,
  type MadeResponse,
  OutgoingCalls,
  type Turn,
} from './outgoing-calls.js';
import type { OutgoingRequest, OutgoingResponse, PacedOptions } from './paced-options.js';

export type { OutgoingRequest, OutgoingResponse, PacedOptions } from './paced-options.js';

type Fields = Record<string, string | string[] | undefined>;
type Handler = Dispatcher.DispatchHandler;

/** Returns an interceptor for `compose`. A request fails with RateLimited if its turn is too far away, or gets a 429 with `respond`. */
export function paced(options: PacedOptions): Dispatcher.DispatcherComposeInterceptor {
  const calls = new OutgoingCalls(options, 'tidegate/undici');
  // An interceptor that follows redirects has one handler for all its requests.
  const sent = new WeakMap<Handler, MadeFor>();
  const interceptor: Dispatcher.DispatcherComposeInterceptor = (dispatch) => (request, handler) => {
    void new DispatchedRequest(dispatch, request, handler, sent).run(calls);
    return true;
  };
  calls.usedBy(interceptor);
  return interceptor;
}

/** A request, for its caller from the beginning to the end of its response. */
class DispatchedRequest implements Exchange<DispatchedAnswer> {
  readonly controller = new Controller();
  hasBegun = false;

  constructor(
    private readonly dispatch: Dispatcher.Dispatch,
    private readonly options: Dispatcher.DispatchOptions,
    readonly handler: Handler,
    private readonly sent: WeakMap<Handler, MadeFor>,
  ) {}

  get redirectedFrom(): MadeFor | undefined {
    return this.sent.get(this.handler);
  }

  async run(calls: OutgoingCalls): Promise<void> {
    try {
      // From now on the caller may give it up.
      this.handler.onRequestStart?.(this.controller, {});
      const { answer, turn } = await calls.send(this);
      if (turn.key !== undefined && this.redirectedFrom === undefined) {
        this.sent.set(this.handler, { origin: this.origin, key: turn.key });
      }
      answer.handOn(turn);
    } catch (error) {
      this.handler.onResponseError?.(this.controller, error as Error);
    }
  }

  /** The origin. A Client of undici 7 does not pass it to its interceptors. */
  get origin(): string | undefined {
    const origin = String(this.options.origin);
    return URL.canParse(origin) ? new URL(origin).origin : undefined;
  }

  get method(): string {
    return String(this.options.method).toUpperCase();
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  get isRepeatable(): boolean {
    return isRepeatable(this.options.body);
  }

  headers(): Headers {
    return headersOf(this.options.headers);
  }

  describe(): OutgoingRequest {
    const { body, path, query } = this.options;
    const url = URL.canParse(path, this.origin) ? new URL(path, this.origin) : undefined;
    for (const [name, value] of Object.entries(query ?? {})) {
      for (const one of Array.isArray(value) ? value : [value]) url?.searchParams.append(name, String(one));
    }
    return {
      method: this.method,
      url: url?.href ?? path,
      headers: this.headers(),
      body: typeof body === 'string' || body instanceof Uint8Array ? body : undefined,
    };
  }

  send(): Promise<DispatchedAnswer> {
    this.hasBegun = false;
    return new Promise((resolve, reject) => {
      const answer = new DispatchedAnswer(this, resolve, reject);
      this.dispatch(this.options, answer);
    });
  }

  made(response: MadeResponse): DispatchedAnswer {
    return DispatchedAnswer.made(this, response);
  }
}

/** The caller's control over its request while that waits, and then over the connection. */
class Controller implements Dispatcher.DispatchController {
  readonly #abort = new AbortController();
  /** The controller of the connection. */
  target: Dispatcher.DispatchController | undefined;
  /** Called when the caller takes more, or gives up. */
  onResume: (() => void) | undefined;
  paused = false;
  rawHeaders: Buffer[] | string[] | Fields | null = null;
  rawTrailers: Buffer[] | string[] | Fields | null = null;

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get aborted(): boolean {
    return this.#abort.signal.aborted;
  }

  get reason(): Error | null {
    return this.aborted ? (this.#abort.signal.reason as Error) : null;
  }

  abort(reason: Error): void {
    if (this.aborted) return;
    this.#abort.abort(reason);
    this.target?.abort(this.reason as Error);
    // A complete response learns of the abort only here.
    this.onResume?.();
  }

  pause(): void {
    this.paused = true;
    this.target?.pause();
  }

  resume(): void {
    this.paused = false;
    this.onResume?.();
  }
}

/** The response to one attempt. Its parts are kept until it is handed on, and while the caller takes nothing. */
class DispatchedAnswer implements Answer, Handler {
  status = 0;
  headers: Fields = {};
  #message: string | undefined;
  readonly #chunks: Buffer[] = [];
  #trailers: Fields | undefined;
  #error: Error | undefined;
  #target: Dispatcher.DispatchController | undefined;
  #upgraded: Duplex | undefined;
  /** Set when it is handed on. */
  #turn: Turn | undefined;
  #isFlushing = false;
  #isDone = false;
  /** Called when something has come. */
  #changed: () => void = () => {};

  constructor(
    private readonly request: DispatchedRequest,
    private readonly resolve: (answer: DispatchedAnswer) => void = () => {},
    private readonly reject: (error: Error) => void = () => {},
  ) {}

  static made(request: DispatchedRequest, { status, headers, body }: MadeResponse): DispatchedAnswer {
    const answer = new DispatchedAnswer(request);
    Object.assign(answer, { status, headers });
    answer.#chunks.push(Buffer.from(body));
    answer.#trailers = {};
    request.controller.rawHeaders = Object.entries(headers).flatMap((field) => field.map((text) => Buffer.from(text)));
    return answer;
  }

  // Methods that the client calls.

  onRequestStart(target: Dispatcher.DispatchController, context: unknown): void {
    const { controller, handler } = this.request;
    if (controller.aborted) {
      target.abort(controller.reason as Error);
      return;
    }
    this.request.hasBegun = true;
    this.#target = target;
    controller.target = target;
    handler.onRequestStart?.(controller, context);
  }

  onRequestUpgrade(_: Dispatcher.DispatchController, status: number, headers: Fields, socket: Duplex): void {
    const { controller, handler } = this.request;
    this.#take(status, headers);
    this.#upgraded = socket;
    handler.onRequestUpgrade?.(controller, status, headers, socket);
    this.resolve(this);
  }

  onResponseStart(target: Dispatcher.DispatchController, status: number, headers: Fields, message?: string): void {
    const { controller, handler } = this.request;
    this.#take(status, headers);
    if (status < 200) {
      handler.onResponseStart?.(controller, status, headers, message);
      return;
    }
    this.#message = message;
    // The body pauses until the response is observed.
    target.pause();
    this.resolve(this);
  }

  #take(status: number, headers: Fields): void {
    this.status = status;
    this.headers = headers;
    this.request.controller.rawHeaders = this.#target?.rawHeaders ?? null;
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#go();
  }

  onResponseEnd(target: Dispatcher.DispatchController, trailers: Fields): void {
    this.request.controller.rawTrailers = target.rawTrailers ?? null;
    this.#trailers = trailers;
    this.#go();
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#error ??= error;
    this.reject(error);
    this.#go();
  }

  // Methods that the flow of `OutgoingCalls` calls.

  header(name: string): string | undefined {
    const value = this.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  head(): OutgoingResponse {
    return { status: this.status, headers: headersOf(this.headers) };
  }

  async read(most: number, late: AbortSignal): Promise<Uint8Array | undefined> {
    if (Number(this.header('content-length')) > most) return undefined;
    const length = (): number => this.#chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    late.addEventListener('abort', () => this.#changed());
    while (this.#trailers === undefined && this.#error === undefined && length() <= most && !late.aborted) {
      await new Promise<void>((resolve) => {
        this.#changed = resolve;
        this.#target?.resume();
      });
    }
    this.#target?.pause();
    return this.#trailers !== undefined && length() <= most ? Buffer.concat(this.#chunks) : undefined;
  }

  close(): void {
    this.request.controller.target = undefined;
    if (this.#trailers === undefined) this.#target?.abort(new Error('the response is not needed'));
  }

  /** Hands the response on to the caller. The turn ends with its body. */
  handOn(turn: Turn): void {
    const { controller, handler } = this.request;
    this.#turn = turn;
    if (this.#upgraded !== undefined) {
      if (this.#upgraded.destroyed) turn.end();
      else this.#upgraded.once('close', () => turn.end());
      return;
    }
    controller.onResume = () => this.#flush();
    if (!controller.aborted) {
      this.#guarded(() => handler.onResponseStart?.(controller, this.status, this.headers, this.#message));
    }
    this.#flush();
  }

  /** True if the body is encoded. It is not read for `settle` then. The interceptor `decompress` in front of `paced` undoes it. */
  get #isEncoded(): boolean {
    return !/^(identity)?$/i.test(this.header('content-encoding') ?? '');
  }

  #go(): void {
    if (this.#turn === undefined) this.#changed();
    else this.#flush();
  }

  /** Gives the caller the received parts, as far as it takes them. */
  #flush(): void {
    const { controller, handler } = this.request;
    // A caller that resumes within a call is in the loop below.
    if (this.#isFlushing || this.#isDone) return;
    this.#isFlushing = true;
    while (!controller.paused && !controller.aborted && this.#chunks.length > 0) {
      const chunk = this.#chunks.shift() as Buffer;
      if (!this.#isEncoded) this.#turn?.feed(chunk);
      this.#guarded(() => handler.onResponseData?.(controller, chunk));
    }
    this.#isFlushing = false;
    const isEmpty = this.#chunks.length === 0;
    if (controller.aborted || (isEmpty && this.#error !== undefined)) {
      this.#done(() => handler.onResponseError?.(controller, controller.reason ?? (this.#error as Error)));
    } else if (isEmpty && this.#trailers !== undefined) {
      this.#done(() => handler.onResponseEnd?.(controller, this.#trailers ?? {}));
    } else if (isEmpty && !controller.paused) {
      this.#target?.resume();
    }
  }

  #done(last: () => void): void {
    this.#isDone = true;
    this.#turn?.end();
    try {
      last();
    } catch (error) {
      this.request.handler.onResponseError?.(this.request.controller, error as Error);
    }
  }

  /** Runs a step of a handler. An error of the handler ends its request, as in undici. */
  #guarded(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.request.controller.abort(error as Error);
    }
  }
}

/** Returns the fields of a request or a response, from any form that undici takes. */
function headersOf(given: Dispatcher.DispatchOptions['headers']): Headers {
  const headers = new Headers();
  const add = (name: unknown, value: unknown): void => {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) headers.append(String(name), String(one));
    }
  };
  if (Array.isArray(given) && !Array.isArray(given[0])) {
    for (let index = 0; index < given.length; index += 2) add(given[index], given[index + 1]);
  } else if (typeof given === 'object' && given !== null && Symbol.iterator in given) {
    for (const [name, value] of given as Iterable<[string, unknown]>) add(name, value);
  } else {
    for (const [name, value] of Object.entries(given ?? {})) add(name, value);
  }
  return headers;
}
