// The adapter of a framework: how to read its requests, and how to write its responses.

import type { KeyInvalid } from '../errors.js';
import type { ProxyTrust } from './proxy-trust.js';
import type { Refused } from './refusal.js';

/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>;

/** Reads the requests of one framework. */
export interface RequestAdapter<Request> {
  /** The entry of the package, for messages. */
  readonly name: string;
  method(request: Request): string;
  /** The path, for messages. */
  path(request: Request): string;
  header(request: Request, name: string): string | undefined;
  /** The address at the other end of the connection. */
  peer(request: Request): string | undefined;
  /** Returns the error for a kind of request that has no address on any server. Undefined for one that has lost its address. */
  withoutPeer?(request: Request): KeyInvalid | undefined;
  /** True if the server listens on a Unix domain socket. It is called only for a request without a peer. */
  overUnix(request: Request): boolean;
  /** An object that lives as long as the request and remembers its admissions. */
  memory(request: Request): object;
  /** The framework's setting of trusted proxies, if it has one. */
  readonly trusts?: ProxyTrust<Request>;
  /** The user that the application's authentication put on the request. */
  user(request: Request): unknown;
  /** The claims of a token that the application has verified. */
  claims(request: Request): unknown;
}

/**
 * Reads the requests of one framework, and writes its responses. If the framework reaches responses through another
 * object, such as a context, `Response` is that object.
 */
export interface Adapter<Request, Response> extends RequestAdapter<Request> {
  /** True if the adapter learns when a handler has ended. */
  readonly seesHandlers?: boolean;
  setField(response: Response, name: string, value: string): unknown;
  setStatus(response: Response, status: number): unknown;
  /** Sends the result of `onDenied`, or without one the problem of the refusal. Sends nothing if `onDenied` has answered itself. */
  refuse(response: Response, body: unknown, refused: Refused): unknown;
  /** True if `refuse` leaves every refusal without a body to the framework's error handling. */
  readonly throwsRefusals?: boolean;
  /** Returns the object that functions among the options get as the response. Default: the response itself. */
  given?(response: Response): unknown;
}

/** A response of Node, or an object with the same facts about another one. A response of HTTP/2 is no stream, but has one. */
export interface Ending {
  readonly destroyed?: boolean;
  readonly writableFinished?: boolean;
  readonly stream?: { readonly destroyed: boolean };
  once(event: 'finish' | 'close', listener: () => void): unknown;
}

/** True if the response is over, because it was sent or its client has gone. Then no handler should start. */
export function isOver({ destroyed, writableFinished, stream }: Ending): boolean {
  return destroyed === true || writableFinished === true || stream?.destroyed === true;
}

/** The common properties of the requests of Node's own server, in any framework. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket: { readonly remoteAddress?: string | undefined } | null | undefined;
}

/** The properties of a socket of Node that lead to the server that accepted it. */
interface AcceptedSocket {
  readonly server?: { address?(): unknown };
  readonly _handle?: object | null;
}

/**
 * True if the connection came through a Unix domain socket. Its own address does not show that, because a reset TCP connection has
 * no address either. The address of the server does. A server on a given descriptor has no address, but the connection has a pipe.
 */
export function isOverUnix(socket: unknown): boolean {
  const { server, _handle: handle } = (socket ?? {}) as AcceptedSocket;
  return typeof server?.address?.() === 'string' || handle?.constructor?.name === 'Pipe';
}

/** Reads requests that are Node's, or have their properties. */
export function nodeRequestAdapter<Request extends NodeRequest>(name: string): RequestAdapter<Request> {
  return {
    name,
    memory: (request) => request,
    method: (request) => request.method ?? '',
    path: (request) => (request.originalUrl ?? request.url ?? '').split('?', 1)[0] ?? '',
    header: (request, name) => {
      const value = request.headers[name.toLowerCase()];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    peer: (request) => request.socket?.remoteAddress,
    overUnix: (request) => isOverUnix(request.socket),
    user: (request) => (request as { user?: unknown }).user,
    claims: (request) => {
      const { auth, user } = request as { auth?: unknown; user?: unknown };
      // Some libraries wrap the claims in other data of the token.
      return (auth as { payload?: unknown } | undefined)?.payload ?? auth ?? user;
    },
  };
}
