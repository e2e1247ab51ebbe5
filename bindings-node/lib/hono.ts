// Hono 4, on Node, Bun and Deno.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, MiddlewareHandler } from 'hono';
import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { KeyInvalid } from './errors.js';
import type { Admission } from './http/admission.js';
import type { SetField } from './http/fields.js';
import { type Keys, keysOf } from './http/keys.js';
import { middlewareParts } from './http/layers.js';
import { isClosed } from './http/node-response.js';
import { patternText, Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE } from './http/refusal.js';
import { isOverUnix, type RequestAdapter } from './http/request-adapter.js';
import { latestAdmission, RequestLimiter } from './http/request-limiter.js';

declare module 'hono' {
  interface ContextVariableMap {
    /** The Decision of `tidegate/hono` about this request. */
    rateLimit: Decision | undefined;
  }
}

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Context, Response>;

/** What servers give to Hono as `env`: Node its two streams, Bun the server, Deno the connection. */
interface Env {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string | undefined } };
  readonly outgoing?: NodeOutgoing;
  readonly server?: Env;
  readonly requestIP?: (request: globalThis.Request) => { readonly address: string } | null;
  readonly url?: URL;
  readonly remoteAddr?: { readonly hostname?: string; readonly transport?: string };
  readonly info?: Env;
}

interface NodeOutgoing {
  readonly destroyed: boolean;
  readonly writableFinished: boolean;
  once(event: 'finish' | 'close', listener: () => void): unknown;
}

function serverOf(context: Context): Env {
  const env = (context.env ?? {}) as Env;
  return env.server ?? env.info ?? env;
}

const adapter: RequestAdapter<Context> = {
  name: 'tidegate/hono',
  seesHandlers: true,
  method: (context) => context.req.method,
  path: (context) => context.req.path,
  header: (context, name) => context.req.header(name),
  peer(context) {
    const server = serverOf(context);
    if (server.requestIP !== undefined) return server.requestIP(context.req.raw)?.address;
    if (server.incoming === undefined && server.remoteAddr === undefined) {
      throw new KeyInvalid(
        'tidegate/hono: this server does not say who is connected, so all clients would be one: give a key, such as ' +
          "key: header('CF-Connecting-IP') behind Cloudflare, or key: (context) => context.get('user').id",
      );
    }
    return server.incoming?.socket?.remoteAddress ?? server.remoteAddr?.hostname;
  },
  overUnix(context) {
    const server = serverOf(context);
    // Bun's server has a URL, and Deno's connections have a transport.
    if (server.requestIP !== undefined) return server.url?.protocol === 'unix:';
    return isOverUnix(server.incoming?.socket) || server.remoteAddr?.transport === 'unix';
  },
  user: (context) => context.get('user' as never),
  claims: (context) => context.get('jwtPayload' as never) ?? context.get('user' as never),
};

export const { clientIp, header, user, claim, fixed }: Keys<Context> = keysOf(adapter);

/** What Hono wraps a handler in, where an application handles its own errors. */
interface Composed {
  readonly __COMPOSED_HANDLER?: MiddlewareHandler;
}

/** The pattern at which the handler that runs was registered, below those of the applications around it. */
function placeOf(context: Context, middleware: MiddlewareHandler): string | Unrouted {
  const { matchedRoutes, routeIndex } = context.req;
  const route = matchedRoutes[routeIndex];
  const pattern = route?.path;
  const name = pattern === '*' || pattern === '/*' ? '' : patternText(pattern);
  let handler = route?.handler as (MiddlewareHandler & Composed) | undefined;
  while (handler?.__COMPOSED_HANDLER !== undefined) handler = handler.__COMPOSED_HANDLER;
  // Another function calls this one, and a pattern of many paths says nothing of the one it is for.
  return handler !== middleware && pattern?.endsWith('*') ? new Unrouted(name) : name;
}

/** A middleware that limits requests. The Decision is `context.get('rateLimit')`. */
export function rateLimit(options: RateLimitOptions): MiddlewareHandler {
  const place = (context: Context): string | Unrouted => placeOf(context, middleware);
  const limiter = new RequestLimiter<Context, Response>(adapter, middlewareParts(options, adapter.name, place));
  const middleware: MiddlewareHandler = async (context, next) => {
    const isGone = departureOf(context);
    const admission = await limiter.admit(context);
    if (admission === undefined) return next();
    context.set('rateLimit', admission.decision);
    if (!admission.admitted) return refuse(admission, context);
    const end = (): void => admission.end(context.res);
    const endsByItself = !admission.needsEnd || endWithOutgoing(context, end);
    await delay(admission.delayMs);
    if (isGone()) {
      end();
      return new Response(null, { status: CLIENT_GONE });
    }
    admission.handlerBegins();
    try {
      await next();
    } catch (error) {
      end();
      throw error;
    } finally {
      admission.handlerEnds(context.res);
    }
    // After the handler: one that throws, or makes its own response, would lose fields that were set before.
    latestAdmission<Context, Response>(adapter, context)?.announce(setHeader, context);
    if (!endsByItself) endWithBody(context, end);
    return undefined;
  };
  return middleware;
}

const setHeader: SetField<Context> = (context, name, value) => context.header(name, value);

async function refuse(admission: Admission<Context, Response>, context: Context): Promise<Response> {
  if (admission.settings.throwsRefusals) throw admission.refusal();
  admission.announce(setHeader, context);
  const body = await admission.denied(context.res, (status) => context.status(status as 429));
  if (body instanceof Response) return asRefusal(body, admission.status);
  if (typeof body === 'string') return context.text(body);
  if (body !== undefined) return context.json(body as object);
  return context.body(admission.problem(), { headers: { 'Content-Type': MEDIA_TYPE } });
}

/** The status that logs of servers have for a client that did not wait. Nothing is sent. */
const CLIENT_GONE = 499;

/** Node's response, where there is one. */
function outgoingOf(context: Context): NodeOutgoing | undefined {
  const env = (context.env ?? {}) as Env;
  return (env.server ?? env).outgoing;
}

/** Says later whether the client has gone. */
function departureOf(context: Context): () => boolean {
  const outgoing = outgoingOf(context);
  if (outgoing !== undefined) return () => isClosed(outgoing);
  // Asked for now: some servers make it when it is first read, and forget what was before.
  const { signal } = context.req.raw;
  return () => signal.aborted;
}

/** Calls `end` when Node's response ends. Other runtimes have no such event: then it returns false. */
function endWithOutgoing(context: Context, end: () => void): boolean {
  const outgoing = outgoingOf(context);
  if (outgoing === undefined) {
    context.req.raw.signal.addEventListener('abort', end, { once: true });
    return false;
  }
  if (isClosed(outgoing)) end();
  outgoing.once('finish', end);
  outgoing.once('close', end);
  return true;
}

/** Calls `end` when the body was read to its end or cancelled. */
function endWithBody(context: Context, end: () => void): void {
  const response = context.res;
  // The body of an answer to HEAD is not read.
  if (response.body === null || context.req.method === 'HEAD') end();
  else context.res = new Response(withEnd(response.body, end), response);
}

/** The bytes of a body; `end` is called after the last one, or when the stream is cancelled. */
function withEnd(body: ReadableStream<Uint8Array>, end: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        end();
        controller.close();
      } catch (error) {
        end();
        controller.error(error);
      }
    },
    cancel(reason) {
      end();
      return reader.cancel(reason);
    },
  });
}
