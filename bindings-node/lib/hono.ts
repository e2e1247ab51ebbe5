// Hono 4, on Node, Bun and Deno.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, MiddlewareHandler } from 'hono';
import type { Decision } from './decision.js';
import { KeyInvalid } from './errors.js';
import type { Adapter } from './http/adapter.js';
import { admit, latestAdmission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { patternText, Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE } from './http/refusal.js';
import { middlewareLimits } from './http/settings.js';
import { clientGone, endingOf, endingWithBody, hostIn, isHostOverUnix, knowsPeers, peerOf } from './http/web-host.js';

declare module 'hono' {
  interface ContextVariableMap {
    /** The Decision of `tidegate/hono` about this request. */
    rateLimit: Decision | undefined;
  }
}

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Context, Response>;

const adapter: Adapter<Context, Context> = {
  name: 'tidegate/hono',
  memory: (context) => context,
  seesHandlers: true,
  method: (context) => context.req.method,
  path: (context) => context.req.path,
  header: (context, name) => context.req.header(name),
  peer(context) {
    const host = hostIn(context.env);
    if (!knowsPeers(host)) {
      throw new KeyInvalid(
        'tidegate/hono: this server does not say who is connected, so all clients would be one: give a key, such as ' +
          "key: header('CF-Connecting-IP') behind Cloudflare, or key: (context) => context.get('user').id",
      );
    }
    return peerOf(host, context.req.raw);
  },
  overUnix: (context) => isHostOverUnix(hostIn(context.env)),
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
    const host = hostIn(context.env);
    const ending = endingOf(host, context.req.raw);
    const admission = await admit(settings, context);
    if (admission === undefined) return next();
    context.set('rateLimit', admission.decision);
    if (!admission.admitted) {
      if (options.onDenied !== 'throw') admission.announce(context);
      return admission.refuse(context) as Promise<Response>;
    }
    if (!(await admission.mayBegin(ending, context))) return clientGone();
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
    if (host.outgoing === undefined && admission.needsEnd) {
      context.res = endingWithBody(context.res, context.req.method, () => admission.end(context));
    }
    return undefined;
  };
  return middleware;
}
