// Koa 2 and 3.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, Middleware, Response } from 'koa';
import { type Keys, keysOf } from './http/keys.js';
import { middlewareParts } from './http/layers.js';
import { isAwaited } from './http/node-response.js';
import { patternText, Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter, type RequestAdapter } from './http/request-adapter.js';
import { RequestLimiter } from './http/request-limiter.js';

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Context, Response>;

const node = nodeRequestAdapter('tidegate/koa');

/** Whether Koa reads the header that `clientIp` reads. */
function readsForwarded({ proxyIpHeader }: Context['app']): boolean {
  return proxyIpHeader.toLowerCase() === 'x-forwarded-for';
}

const adapter: RequestAdapter<Context> = {
  name: node.name,
  seesHandlers: true,
  method: (context) => context.method,
  path: (context) => context.path,
  header: (context, name) => node.header(context.req, name),
  peer: (context) => node.peer(context.req),
  overUnix: (context) => node.overUnix(context.req),
  trusts: {
    setting: 'app.proxy',
    // `maxIpsCount` says how many proxies there are; Koa's `proxy` alone trusts every client.
    of: ({ app }) => (app.proxy && app.maxIpsCount > 0 && readsForwarded(app) ? app.maxIpsCount : app.proxy),
  },
  user: (context) => context.state['user'],
  claims: (context) => context.state['auth'] ?? context.state['user'],
};

export const { clientIp, header, user, claim, fixed }: Keys<Context> = keysOf(adapter);

/** What routers and `koa-mount` put on a context. */
interface Routed {
  readonly _matchedRoute?: unknown;
  readonly mountPath?: string;
}

/** The pattern of the route, below the path at which its application is mounted. */
function placeOf(context: Context, middleware: Middleware): string | Unrouted {
  const { _matchedRoute: pattern, mountPath } = context as Routed;
  if (mountPath === undefined) {
    const isRouted = pattern !== undefined || context.app.middleware.includes(middleware);
    return isRouted ? patternText(pattern) : new Unrouted('', context.app);
  }
  const path = context.originalUrl.split('?', 1)[0] as string;
  const mounted = path.endsWith(context.path) ? path.slice(0, path.length - context.path.length) : path;
  // Only where the path that is cut off is the mounted one, it is no part that a client chooses.
  const isNamed = mounted === '' || mounted === mountPath || path === mountPath;
  const name = isNamed ? `${mountPath}${patternText(pattern)}` : patternText(pattern);
  return isNamed && pattern !== undefined ? name : new Unrouted(name, context.app);
}

/** An error with the headers of its answer. */
type Answer = Error & { readonly headers?: Readonly<Record<string, string>> };

/** A middleware that limits requests. The Decision is in `context.state.rateLimit`. */
export function rateLimit(options: RateLimitOptions): Middleware {
  const place = (context: Context): string | Unrouted => placeOf(context, middleware);
  const limiter = new RequestLimiter<Context, Response>(adapter, middlewareParts(options, adapter.name, place));
  const middleware: Middleware = async (context, next) => {
    const admission = await limiter.admit(context);
    if (admission === undefined) return next();
    context.state['rateLimit'] = admission.decision;
    const fields = admission.fields();
    context.set(fields);
    if (admission.admitted) {
      if (!(await isAwaited(admission, context.res, context.response))) return undefined;
      admission.handlerBegins();
      try {
        return await next();
      } catch (error) {
        // Koa answers an error with the headers of the error, and no others.
        if (error instanceof Error) Object.assign(error, { headers: { ...fields, ...(error as Answer).headers } });
        throw error;
      } finally {
        admission.handlerEnds(context.response);
      }
    }
    if (admission.settings.throwsRefusals) throw admission.refusal(fields);
    const body = await admission.denied(context.response, (status) => {
      context.status = status;
    });
    if (context.headerSent) return undefined;
    const hasAnswered = body === undefined && context.body !== undefined && context.body !== null;
    if (body === undefined && !hasAnswered) context.type = MEDIA_TYPE;
    if (!hasAnswered) context.body = body ?? admission.problem();
    // A `Response` as the body brings its status, which is 200 when it names none.
    if (context.status === 200) context.status = admission.status;
    return undefined;
  };
  return middleware;
}
