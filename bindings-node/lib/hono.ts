// Hono 4, on Node, Bun and Deno.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, MiddlewareHandler } from 'hono';
import type { Decision } from './decision.js';
import { KeyInvalid } from './errors.js';
import { type Adapter, type Ending, isOverUnix } from './http/adapter.js';
import { admit, latestAdmission } from './http/admission.js';
import { withEnd } from './http/body-end.js';
import { type Keys, keysOf } from './http/keys.js';
import { patternText, Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE } from './http/refusal.js';
import { middlewareLimits } from './http/settings.js';

declare module 'hono' {
  interface ContextVariableMap {
    /** The Decision of `tidegate/hono` about this request. */
    rateLimit: Decision | undefined;
  }
}

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Context, Response>;

/** The `env` that servers give Hono. Node gives its two streams, Bun the server, Deno the connection. */
interface Env {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string | undefined } };
  readonly outgoing?: Ending;
  readonly server?: Env;
  readonly requestIP?: (request: globalThis.Request) => { readonly address: string } | null;
  readonly url?: URL;
  readonly remoteAddr?: { readonly hostname?: string; readonly transport?: string };
  readonly info?: Env;
}

function serverOf(context: Context): Env {
  const env = (context.env ?? {}) as Env;
  return env.server ?? env.info ?? env;
}

const adapter: Adapter<Context, Context> = {
  name: 'tidegate/hono',
  memory: (context) => context,
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
  setField: (context, name, value) => context.header(name, value),
  setStatus: (context, status) => context.status(status as 429),
  refuse(context, body, refused) {
    if (body instanceof Response) return asRefusal(body, refused.status);
    if (typeof body === 'string') return context.text(body);
    if (body !== undefined) return context.json(body as object);
    // This is no argument of `body`, with which the first releases of Hono 4 forget the status.
    context.header('Content-Type', MEDIA_TYPE);
    return context.body(refused.problem());
  },
  given: (context) => context.res,
};

export const { clientIp, header, user, claim, fixed }: Keys<Context> = keysOf(adapter);

/** The wrapper that Hono puts around a handler if an application handles its own errors. */
interface Composed {
  readonly __COMPOSED_HANDLER?: MiddlewareHandler;
}

/** Returns the pattern of the running handler, below the patterns of the applications around it. */
function placeOf(context: Context, middleware: MiddlewareHandler): string | Unrouted {
  const { matchedRoutes, routeIndex } = context.req;
  const route = matchedRoutes[routeIndex];
  const pattern = route?.path;
  const name = pattern === '*' || pattern === '/*' ? '' : patternText(pattern);
  let handler = route?.handler as (MiddlewareHandler & Composed) | undefined;
  while (handler?.__COMPOSED_HANDLER !== undefined) handler = handler.__COMPOSED_HANDLER;
  // Another function calls this one, and a pattern of many paths does not show its place.
  return handler !== middleware && pattern?.endsWith('*') ? new Unrouted(name) : name;
}

/** Returns a middleware that limits requests. You find the Decision in `context.get('rateLimit')`. */
export function rateLimit(options: RateLimitOptions): MiddlewareHandler {
  const settings = middlewareLimits(adapter, options, (context) => placeOf(context, middleware));
  const middleware: MiddlewareHandler = async (context, next) => {
    // Node's response, if there is one.
    const { outgoing } = serverOf(context);
    // The signal is read now, because some servers make it at the first read and forget an abort before that.
    const ending = outgoing ?? new Departure(context.req.raw.signal);
    const admission = await admit(settings, context);
    if (admission === undefined) return next();
    context.set('rateLimit', admission.decision);
    if (!admission.admitted) {
      if (options.onDenied !== 'throw') admission.announce(context);
      return admission.refuse(context) as Promise<Response>;
    }
    if (!(await admission.mayBegin(ending, context))) return new Response(null, { status: CLIENT_GONE });
    admission.handlerBegins();
    try {
      await next();
    } catch (error) {
      admission.end(context);
      throw error;
    } finally {
      admission.handlerEnds(context);
    }
    // The fields are set after the handler. A handler that throws, or makes its own response, would lose earlier ones.
    latestAdmission(adapter, context)?.announce(context);
    if (outgoing === undefined && admission.needsEnd) endWithBody(context, () => admission.end(context));
    return undefined;
  };
  return middleware;
}

/** The status in server logs for a client that did not wait. Nothing is sent. */
const CLIENT_GONE = 499;

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

/** Calls `end` when the body was read to its end or cancelled. */
function endWithBody(context: Context, end: () => void): void {
  const response = context.res;
  // The body of an answer to HEAD is not read.
  if (response.body === null || context.req.method === 'HEAD') end();
  else context.res = new Response(withEnd(response.body, end), response);
}
