// What the file of a framework says of it: how its requests are read, and how its responses are written.

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
  /** The error for a request of a kind whose address no server says; undefined for a request that has lost its own. */
  withoutPeer?(request: Request): KeyInvalid | undefined;
  /** Whether the server says that it listens on a Unix domain socket. Only for a request without a peer. */
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
 * Reads the requests of one framework, and writes its responses. Where responses are reached through something else, such as a
 * context, `Response` is that.
 */
export interface Adapter<Request, Response> extends RequestAdapter<Request> {
  /** Whether the framework says when a handler has ended. */
  readonly seesHandlers?: boolean;
  setField(response: Response, name: string, value: string): unknown;
  setStatus(response: Response, status: number): unknown;
  /** Sends what `onDenied` has returned, unless that has answered itself; of nothing the problem of the refusal. */
  refuse(response: Response, body: unknown, refused: Refused): unknown;
  /** Whether `refuse` leaves every refusal without a body to the framework's error handling. */
  readonly throwsRefusals?: boolean;
  /** What functions given as options get. Default: the response itself. */
  given?(response: Response): unknown;
}

/** A response of Node, or what says as much of another. That of HTTP/2 is no stream, but has one. */
export interface Ending {
  readonly destroyed?: boolean;
  readonly writableFinished?: boolean;
  readonly stream?: { readonly destroyed: boolean };
  once(event: 'finish' | 'close', listener: () => void): unknown;
}

/** Whether a response is over: it was sent, or its client has gone. Then no handler should start. */
export function isOver({ destroyed, writableFinished, stream }: Ending): boolean {
  return destroyed === true || writableFinished === true || stream?.destroyed === true;
}

/** What the requests of Node's own server have in common, whatever framework wraps them. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket: { readonly remoteAddress?: string | undefined } | null | undefined;
}

/** What Node's sockets know of the server that accepted them. */
interface AcceptedSocket {
  readonly server?: { address?(): unknown };
  readonly _handle?: object | null;
}

/**
 * Whether a connection came through a Unix domain socket. Its address does not say: a TCP connection that was reset has none any
 * more. The address of its server does. A server that was given a descriptor has no address, but the connection has a pipe.
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
