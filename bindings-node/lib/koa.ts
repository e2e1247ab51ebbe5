// Koa 2 and 3.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, Middleware, Response } from 'koa';
import { type Adapter, nodeRequestAdapter } from './http/adapter.js';
import { admit } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { patternText, Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { middlewareLimits } from './http/settings.js';

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Context, Response>;

const node = nodeRequestAdapter('tidegate/koa');

/** True if Koa reads the same header as `clientIp`. */
function readsForwarded({ proxyIpHeader }: Context['app']): boolean {
  return proxyIpHeader.toLowerCase() === 'x-forwarded-for';
}

const adapter: Adapter<Context, Response> = {
  name: node.name,
  memory: (context) => context,
  seesHandlers: true,
  method: (context) => context.method,
  path: (context) => context.path,
  header: (context, name) => node.header(context.req, name),
  peer: (context) => node.peer(context.req),
  overUnix: (context) => node.overUnix(context.req),
  trusts: {
    setting: 'app.proxy',
    // `maxIpsCount` is the number of proxies. Koa's `proxy` alone trusts every client.
    of: ({ app }) => (app.proxy && app.maxIpsCount > 0 && readsForwarded(app) ? app.maxIpsCount : app.proxy),
  },
  user: (context) => context.state['user'],
  claims: (context) => context.state['auth'] ?? context.state['user'],
  setField: (response, name, value) => response.set(name, value),
  setStatus(response, status) {
    response.status = status;
  },
  refuse(response, body, refused) {
    if (response.headerSent) return;
    // `onDenied` may have set the body.
    if (body === undefined && (response.body === undefined || response.body === null)) {
      response.type = MEDIA_TYPE;
      response.body = refused.problem();
    } else if (body !== undefined) response.body = body;
    // A `Response` as the body brings its status, which is 200 if it names none.
    if (response.status === 200) response.status = refused.status;
  },
};

export const { clientIp, header, user, claim, fixed }: Keys<Context> = keysOf(adapter);

/** The properties that routers and `koa-mount` put on a context. */
interface Routed {
  readonly _matchedRoute?: unknown;
  readonly mountPath?: string;
}

/** Returns the pattern of the route, below the mount path of its application. */
function placeOf(context: Context, middleware: Middleware): string | Unrouted {
  const { _matchedRoute: pattern, mountPath } = context as Routed;
  if (mountPath === undefined) {
    const isRouted = pattern !== undefined || context.app.middleware.includes(middleware);
    return isRouted ? patternText(pattern) : new Unrouted('', context.app);
  }
  const path = context.originalUrl.split('?', 1)[0] as string;
  const mounted = path.endsWith(context.path) ? path.slice(0, path.length - context.path.length) : path;
  // If the cut-off path is the mount path, a client did not choose it.
  const isNamed = mounted === '' || mounted === mountPath || path === mountPath;
  const name = isNamed ? `${mountPath}${patternText(pattern)}` : patternText(pattern);
  return isNamed && pattern !== undefined ? name : new Unrouted(name, context.app);
}

/** An error with the headers of its answer. */
type Answer = Error & { readonly headers?: Readonly<Record<string, string>> };

/** Returns a middleware that limits requests. You find the Decision in `context.state.rateLimit`. */
export function rateLimit(options: RateLimitOptions): Middleware {
  const settings = middlewareLimits(adapter, options, (context) => placeOf(context, middleware));
  const middleware: Middleware = async (context, next) => {
    const admission = await admit(settings, context);
    if (admission === undefined) return next();
    const { response } = context;
    context.state['rateLimit'] = admission.decision;
    admission.announce(response);
    if (!admission.admitted) return admission.refuse(response);
    if (!(await admission.mayBegin(context.res, response))) return undefined;
    admission.handlerBegins();
    try {
      return await next();
    } catch (error) {
      // Koa answers an error with the headers of the error, and no others.
      if (error instanceof Error) {
        Object.assign(error, { headers: { ...admission.fields(), ...(error as Answer).headers } });
      }
      throw error;
    } finally {
      admission.handlerEnds(response);
    }
  };
  return middleware;
}
