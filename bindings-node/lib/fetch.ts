// A `fetch` that makes its calls wait for their turn.
//
//     import { pacedFetch } from 'tidegate/fetch';
//
//     const fetch = pacedFetch({ limiter, policy: '5000/hour; 80/minute' });
//     const response = await fetch('https://api.example.com/');

import { ConfigError, describe } from './errors.js';
import { withEnd } from './http/body-end.js';
import {
  type Answer,
  type Exchange,
  isRepeatable,
  type MadeFor,
  type MadeResponse,
  OutgoingCalls,
  type Turn,
} from './outgoing-calls.js';
import type { OutgoingRequest, PacedOptions } from './paced-options.js';

export type { OutgoingRequest, OutgoingResponse, PacedOptions } from './paced-options.js';

/** The platform's `fetch`, if the types of your program have one. */
export type WebFetch = typeof globalThis extends { fetch: infer F } ? F : never;

/** The options of `pacedFetch`. */
export interface PacedFetchOptions extends PacedOptions {
  /** The function that makes the calls. Default: the `fetch` of the platform. */
  fetch?: WebFetch | undefined;
}

type FetchInput = string | URL | Request;

const WHERE = 'tidegate/fetch';
const REDIRECTS = new Set([301, 302, 303, 307, 308]);
/** As many as the Fetch standard allows. */
const MAX_REDIRECTS = 20;
/** The fields that describe a body, and are dropped with it. */
const OF_BODY = ['content-encoding', 'content-language', 'content-location', 'content-type', 'content-length'];
/** The fields that are meant for one origin only. */
const OF_ORIGIN = ['authorization', 'proxy-authorization', 'cookie', 'host'];
/** The properties of a Request, besides its body, that its redirects keep. */
const OF_REQUEST = [
  'method',
  'headers',
  'mode',
  'credentials',
  'cache',
  'integrity',
  'keepalive',
  'referrer',
  'referrerPolicy',
  'signal',
] as const;

/**
 * Returns a function with the signature of `fetch`. Each call waits for its turn. If the turn is too far away, it
 * throws RateLimited, or answers 429 with the option `respond`.
 */
export function pacedFetch(options: PacedFetchOptions): WebFetch {
  const calls = new OutgoingCalls(options, WHERE, ['fetch']);
  const { fetch = globalThis.fetch } = options;
  if (typeof fetch !== 'function') {
    throw new ConfigError(`${WHERE}: the option fetch must be a function, not ${describe(fetch)}`);
  }
  const paced = async (input: FetchInput, init?: RequestInit): Promise<Response> => {
    let hop = Hop.first(fetch, input, init);
    // An address that is invalid or not HTTP, such as a data: URL, goes straight to fetch.
    if (hop === undefined) return fetch(input, init);
    for (let redirects = 0; ; redirects++) {
      const { answer, turn } = await calls.send(hop);
      try {
        const next: Hop | undefined = hop.next(answer, redirects, turn.key);
        if (next === undefined) return handedOn(answer.response, turn, redirects > 0, hop.signal);
        hop = next;
      } catch (error) {
        answer.close();
        turn.end();
        throw error;
      }
      answer.close();
      turn.end();
    }
  };
  calls.usedBy(paced);
  // Node loads its fetch at the first use. If that were the first call, its turn would be over before the request is sent.
  new Response(null);
  return paced as WebFetch;
}

/**
 * A request to one address. Redirects are followed here, by the rules of the Fetch standard. Each redirect is a
 * separate call, which waits, is charged and observed under its own origin.
 */
class Hop implements Exchange<FetchAnswer> {
  private constructor(
    private readonly fetch: WebFetch,
    /** `scheme://host[:port]`. */
    readonly origin: string,
    private readonly href: string,
    private readonly input: FetchInput,
    private readonly init: RequestInit | undefined,
    readonly redirectedFrom?: MadeFor,
  ) {}

  static first(fetch: WebFetch, input: FetchInput, init: RequestInit | undefined): Hop | undefined {
    const text = isRequest(input) ? input.url : String(input);
    const origin = originOf(text);
    return origin === undefined ? undefined : new Hop(fetch, origin, text, input, init);
  }

  /** The whole address. */
  get #url(): URL {
    return new URL(this.href);
  }

  get #request(): Request | undefined {
    return isRequest(this.input) ? this.input : undefined;
  }

  get method(): string {
    return String(this.init?.method ?? this.#request?.method ?? 'GET').toUpperCase();
  }

  get signal(): AbortSignal | undefined {
    const given = this.init?.signal;
    return (given === undefined ? this.#request?.signal : given) ?? undefined;
  }

  /** The body from the options, or else that of the Request, which is a stream. */
  get #body(): unknown {
    return this.init?.body ?? this.#request?.body ?? undefined;
  }

  get isRepeatable(): boolean {
    return isRepeatable(this.#body);
  }

  get #follows(): boolean {
    return (this.init?.redirect ?? this.#request?.redirect ?? 'follow') === 'follow';
  }

  headers(): Headers {
    return new Headers(this.init?.headers ?? this.#request?.headers);
  }

  async describe(): Promise<OutgoingRequest> {
    return { method: this.method, url: this.#url.href, headers: this.headers(), body: await this.#bytes() };
  }

  async #bytes(): Promise<string | Uint8Array | undefined> {
    const body = this.#body;
    if (typeof body === 'string') return body;
    if (body instanceof ArrayBuffer) return new Uint8Array(body);
    if (ArrayBuffer.isView(body)) return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
    const request = this.#request;
    if (body === undefined || request === undefined || body !== request.body || request.bodyUsed) return undefined;
    return new Uint8Array(await request.clone().arrayBuffer());
  }

  send(): Promise<FetchAnswer> {
    const init = this.#follows ? { ...copied(this.init), redirect: 'manual' as const } : this.init;
    return Promise.resolve(this.fetch(this.input, init)).then(answerOf);
  }

  made({ status, headers, body }: MadeResponse): FetchAnswer {
    return new FetchAnswer(saying(new Response(body, { status, headers }), { url: this.#url.href }));
  }

  /** Returns the request that a redirect asks for. Undefined if the response is no redirect, or it is not followed. */
  next(answer: FetchAnswer, redirects: number, key: string | undefined): Hop | undefined {
    const { status } = answer;
    const location = REDIRECTS.has(status) && this.#follows ? answer.headers.get('location') : null;
    if (location === null) return undefined;
    const address = Buffer.from(location, 'latin1').toString();
    if (!URL.canParse(address, this.href))
      throw failed(`the location of a redirect is not a URL: ${describe(address)}`);
    const url = new URL(address, this.#url);
    if (url.protocol !== 'http:' && url.protocol !== 'https:') throw failed(`a redirect leads to ${url.protocol}`);
    if (redirects >= MAX_REDIRECTS) throw failed(`there are more than ${MAX_REDIRECTS} redirects`);
    const init: RequestInit = { ...carried(this.#request), ...copied(this.init), headers: this.headers() };
    const fields = init.headers as Headers;
    const isPost = this.method === 'POST' && (status === 301 || status === 302);
    if (isPost || (status === 303 && this.method !== 'GET' && this.method !== 'HEAD')) {
      init.method = 'GET';
      delete init.body;
      for (const name of OF_BODY) fields.delete(name);
    } else if (!this.isRepeatable) {
      throw failed(
        'the body of a redirected request is a stream, which cannot be sent again: give it as text, bytes or a form in the options of fetch',
      );
    }
    if (url.origin !== this.origin) for (const name of OF_ORIGIN) fields.delete(name);
    const from = this.redirectedFrom ?? (key === undefined ? undefined : { origin: this.origin, key });
    return new Hop(this.fetch, url.origin, url.href, url, init, from);
  }
}

/** The origin of the last address, with a slash at its end. */
let lastBase = 'http://localhost/';

/** Returns the origin of an HTTP address. Most have the same origin as the one before, and then the text is not parsed. */
function originOf(text: string): string | undefined {
  if (text.startsWith(lastBase)) return lastBase.slice(0, -1);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return undefined;
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') return undefined;
  lastBase = `${url.origin}/`;
  return url.origin;
}

function isRequest(input: FetchInput): input is Request {
  return typeof input === 'object' && input !== null && 'url' in input;
}

/** Returns the options as a plain object. A Request may stand in their place. */
function copied(init: RequestInit | undefined): RequestInit {
  const copy: Record<string, unknown> = {};
  for (const name in init) {
    const value = init[name as keyof RequestInit];
    if (value !== undefined) copy[name] = value;
  }
  return copy;
}

function carried(request: Request | undefined): RequestInit {
  if (request === undefined) return {};
  return Object.fromEntries(OF_REQUEST.map((name) => [name, request[name]])) as RequestInit;
}

/** Returns the error that fetch throws for a failed request. */
function failed(message: string): TypeError {
  return new TypeError('fetch failed', { cause: new Error(message) });
}

class FetchAnswer implements Answer {
  readonly status: number;

  constructor(readonly response: Response) {
    this.status = response.status;
  }

  get headers(): Headers {
    return this.response.headers;
  }

  header(name: string): string | null {
    return this.response.headers.get(name);
  }

  head(): Response {
    return this.response;
  }

  /** Reads a copy of the body. The bytes read stay in memory until the caller reads them too, and no more than those. */
  async read(most: number, late: AbortSignal): Promise<Uint8Array | undefined> {
    if (Number(this.header('content-length')) > most) return undefined;
    const reader = this.response.clone().body?.getReader();
    // This cancel resolves only when the response's own body is done too, so nothing waits for it.
    const stop = (): void => void reader?.cancel().catch(() => {});
    late.addEventListener('abort', stop);
    const chunks: Uint8Array[] = [];
    let length = 0;
    try {
      while (reader !== undefined) {
        const { done, value } = await reader.read();
        if (done) return late.aborted ? undefined : Buffer.concat(chunks);
        chunks.push(value);
        length += value.length;
        if (length <= most) continue;
        stop();
        break;
      }
    } catch {
      // The caller meets the error when it reads the body.
    }
    return undefined;
  }

  close(): void {
    this.response.body?.cancel().catch(() => {});
  }
}

function answerOf(response: Response): FetchAnswer {
  return new FetchAnswer(response);
}

/** Returns the response for the caller. The turn ends with its body, or when the request is aborted. */
function handedOn(response: Response, turn: Turn, isRedirected: boolean, signal: AbortSignal | undefined): Response {
  if (turn.isOpen && response.body !== null) {
    const { url, type } = response;
    const redirected = isRedirected || response.redirected;
    const end = (): void => {
      signal?.removeEventListener('abort', end);
      turn.end();
    };
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
    const body = withEnd(response.body, end, (chunk) => turn.feed(chunk));
    return saying(new Response(body, response), { url, type, redirected });
  }
  turn.end();
  return isRedirected ? saying(response, { redirected: true }) : response;
}

/** Sets properties of a response and of each clone of it. */
function saying(response: Response, said: Partial<Response>): Response {
  const { clone } = response;
  const properties = { ...said, clone: () => saying(clone.call(response), said) };
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(response, name, { value, configurable: true });
  }
  return response;
}
