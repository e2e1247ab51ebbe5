// What the neutral half knows of a framework: how its requests are read, and how its answers are written. An adapter is
// one of each, and the few lines that call them.

import type { Socket } from 'node:net';
import type { ProxyTrust } from './proxy-trust.js';

/** How the requests of a framework are read. */
export interface RequestAdapter<Request> {
  /** The adapter's name, for messages. */
  readonly name: string;
  method(request: Request): string;
  /** The path, for messages. */
  path(request: Request): string;
  header(request: Request, name: string): string | undefined;
  /** The address at the other end of the connection. */
  peer(request: Request): string | undefined;
  /** What lives as long as the request and remembers what was asked about it; the request itself when not said. */
  memory?(request: Request): object;
  /** Whom the framework was told to trust with an address, if it has such a setting. */
  readonly trusts?: ProxyTrust<Request>;
  /** What the application's authentication left on the request. */
  user(request: Request): unknown;
  /** The claims of a token that the application has verified. */
  claims(request: Request): unknown;
}

/** What the requests of Node's own server have in common, whatever framework wraps them. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly originalUrl?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket: Pick<Socket, 'remoteAddress'> | null | undefined;
}

/** A adapter of requests that are Node's, or look like them. */
export function nodeRequestAdapter<Request extends NodeRequest>(
  name: string,
  more: Pick<RequestAdapter<Request>, 'memory' | 'trusts'> = {},
): RequestAdapter<Request> {
  return {
    name,
    method: (request) => request.method ?? '',
    path: (request) => (request.originalUrl ?? request.url ?? '').split('?', 1)[0] ?? '',
    header: (request, name) => {
      const value = request.headers[name.toLowerCase()];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    peer: (request) => request.socket?.remoteAddress,
    user: (request) => (request as { user?: unknown }).user,
    claims: (request) => {
      const { auth, user } = request as { auth?: unknown; user?: unknown };
      // Some libraries wrap the claims in what else they know of the token.
      return (auth as { payload?: unknown } | undefined)?.payload ?? auth ?? user;
    },
    ...more,
  };
}
