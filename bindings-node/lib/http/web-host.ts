// Requests of the platform, and the servers that call a handler with one: where these have the client's address, and how they
// report that it has gone.

import { KeyInvalid } from '../errors.js';
import { type Ending, isOverUnix, nodeRequestAdapter, type RequestAdapter } from './adapter.js';
import { withEnd } from './body-end.js';

/** The argument that servers give beside a `Request`. Node gives its two streams, Bun the server, Deno the connection. */
export interface Host {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string | undefined } } | undefined;
  readonly outgoing?: Ending | undefined;
  readonly server?: Host;
  readonly requestIP?: (request: Request) => { readonly address: string } | null;
  readonly url?: URL;
  readonly remoteAddr?: { readonly hostname?: string; readonly transport?: string };
  readonly info?: Host;
  /** Events of h3 1 have the two streams here, and so have requests of srvx. */
  readonly node?: { readonly req: Host['incoming']; readonly res?: Host['outgoing'] };
}

/** Returns the host in an argument, which may be in the `env` of a framework. */
export function hostIn(given: unknown): Host {
  const host = (typeof given === 'object' && given !== null ? given : {}) as Host;
  if (host.node !== undefined) return { incoming: host.node.req, outgoing: host.node.res };
  return host.server ?? host.info ?? host;
}

/** A request of srvx, which h3 and Nitro get. It carries its host. */
interface HostedRequest extends Request {
  readonly runtime?: Host & { readonly bun?: Host; readonly deno?: Host };
}

/** The argument of the host beside a request: Bun's server, Deno's connection, or the address of the client. */
export type GivenHost = { readonly address?: string | undefined } | object | undefined;

/** The hosts of requests, and the addresses that were given with them. */
const known = new WeakMap<Request, { readonly host: Host; readonly address: string | undefined }>();

/** Remembers the host of a request, and returns it. */
export function remembered(request: Request, given: GivenHost): Host {
  const host = hostOf(request, given);
  const { address } = (given ?? {}) as { readonly address?: unknown };
  // Bun's server has an `address` too, which is an object.
  known.set(request, { host, address: typeof address === 'string' ? address : undefined });
  return host;
}

/** Reads requests of the platform whose hosts are remembered. */
export function webRequestAdapter(name: string): RequestAdapter<Request> {
  const { user, claims } = nodeRequestAdapter<never>(name) as unknown as RequestAdapter<Request>;
  const rememberedHost = (request: Request): Host => known.get(request)?.host ?? {};
  return {
    name,
    user,
    claims,
    memory: (request) => request,
    method: ({ method }) => method,
    path: ({ url }) => new URL(url).pathname,
    header: ({ headers }, name) => headers.get(name) ?? undefined,
    peer: (request) => known.get(request)?.address ?? peerOf(rememberedHost(request), request),
    withoutPeer(request) {
      if (knowsPeers(rememberedHost(request))) return undefined;
      return new KeyInvalid(
        `${name}: this host does not say who sent a Request: give the address, as in limit.check(request, { address }), or count the ` +
          'proxies that write X-Forwarded-For, as in key: clientIp({ trustedProxies: 1 }), or give another key',
      );
    },
    overUnix: (request) => isHostOverUnix(rememberedHost(request)),
  };
}

/** Returns the host of a request: the argument beside it, or the one that the request carries. */
function hostOf(request: HostedRequest, given: unknown): Host {
  const host = hostIn(given);
  const { runtime } = request;
  return runtime === undefined || knowsPeers(host) ? host : hostIn(runtime.bun ?? runtime.deno ?? runtime);
}

/** True if the host knows who is connected. */
export function knowsPeers({ requestIP, incoming, remoteAddr }: Host): boolean {
  return (requestIP ?? incoming ?? remoteAddr) !== undefined;
}

/** Returns the address at the other end of the connection. */
export function peerOf(host: Host, request: Request): string | undefined {
  if (host.requestIP !== undefined) return host.requestIP(request)?.address;
  return host.incoming?.socket?.remoteAddress ?? host.remoteAddr?.hostname;
}

/** True if the server listens on a Unix domain socket. Bun's server has a URL, and Deno's connections have a transport. */
export function isHostOverUnix({ requestIP, url, incoming, remoteAddr }: Host): boolean {
  if (requestIP !== undefined) return url?.protocol === 'unix:';
  return isOverUnix(incoming?.socket) || remoteAddr?.transport === 'unix';
}

/** Returns the end of the exchange. Servers without Node's response only report by a signal that the client has gone. */
export function endingOf(host: Host, request: Request): Ending {
  // The signal is read now, because some servers make it at the first read and forget an abort before that.
  return host.outgoing ?? new Departure(request.signal);
}

/** Knows if the client has gone, on servers without Node's response. */
class Departure implements Ending {
  constructor(private readonly signal: AbortSignal) {}

  get destroyed(): boolean {
    return this.signal.aborted;
  }

  once(event: 'finish' | 'close', listener: () => void): void {
    if (event === 'close') this.signal.addEventListener('abort', listener, { once: true });
  }
}

/** Returns the answer to a client that did not wait. Nothing is sent, and server logs show the status. */
export function clientGone(): Response {
  return new Response(null, { status: 499 });
}

/** Returns a copy of the response. It calls `end` when the body was read to its end or cancelled. */
export function endingWithBody(response: Response, method: string, end: () => void): Response {
  // The body of an answer to HEAD is not read.
  if (response.body !== null && method !== 'HEAD') return new Response(withEnd(response.body, end), response);
  end();
  return response;
}
