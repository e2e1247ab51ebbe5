// Hono 4, on Node, Bun and Deno.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, MiddlewareHandler } from 'hono';
import type { Decision } from './decision.js';
import { type Admission, newest, RequestLimiter } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { turn } from './http/node-response.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import type { RequestAdapter } from './http/request-adapter.js';

declare module 'hono' {
  interface ContextVariableMap {
    /** What `tidegate/hono` decided about this request. */
    rateLimit: Decision | undefined;
  }
}

/** What servers hand to Hono as `env`: Node's its two streams, Bun's itself, Deno's what it knows of the connection. */
interface Env {
  readonly incoming?: { readonly socket?: { readonly remoteAddress?: string | undefined } };
  readonly outgoing?: NodeOutgoing;
  readonly server?: Env;
  readonly requestIP?: (request: globalThis.Request) => { readonly address: string } | null;
  readonly remoteAddr?: { readonly hostname?: string };
  readonly info?: Env;
}

interface NodeOutgoing {
  readonly destroyed: boolean;
  readonly writableFinished: boolean;
  once(event: 'finish' | 'close', listener: () => void): unknown;
}

const adapter: RequestAdapter<Context> = {
  name: 'tidegate/hono',
  method: (context) => context.req.method,
  path: (context) => context.req.path,
  header: (context, name) => context.req.header(name),
  peer(context) {
    const env = (context.env ?? {}) as Env;
    const server = env.server ?? env.info ?? env;
    if (server.requestIP !== undefined) return server.requestIP(context.req.raw)?.address;
    return server.incoming?.socket?.remoteAddress ?? server.remoteAddr?.hostname;
  },
  user: (context) => context.get('user' as never),
  claims: (context) => context.get('jwtPayload' as never) ?? context.get('user' as never),
};

const keys: Keys<Context> = keysOf(adapter);
export const clientIp: Keys<Context>['clientIp'] = keys.clientIp;
export const header: Keys<Context>['header'] = keys.header;
export const user: Keys<Context>['user'] = keys.user;
export const claim: Keys<Context>['claim'] = keys.claim;

/** A middleware that limits requests. The Decision is `context.get('rateLimit')`. */
export function rateLimit(options: RateLimitOptions<Context, Response>): MiddlewareHandler {
  const requestLimiter = new RequestLimiter<Context, Response>(adapter, options);
  return async (context, next) => {
    const admission = await requestLimiter.ask(context);
    if (admission === undefined) return next();
    context.set('rateLimit', admission.decision);
    if (!admission.admitted) return refuse(admission, context);
    const over = (): void => admission.over(context.res);
    const attended = !admission.pending || attend(context, over);
    await turn(admission.delayMs);
    try {
      await next();
    } catch (error) {
      over();
      throw error;
    }
    // Only now: a handler that throws, or makes its own response, loses what was set before.
    announce(context);
    if (!attended) watch(context, over);
    return undefined;
  };
}

function announce(context: Context): void {
  newest<Context, Response>(adapter, context)?.announce(put, context);
}

function put(context: Context, name: string, value: string): void {
  context.header(name, value);
}

async function refuse(admission: Admission<Context, Response>, context: Context): Promise<Response> {
  announce(context);
  context.status(admission.status);
  const body = await admission.denied(context.res);
  if (body instanceof Response) return body;
  if (typeof body === 'string') return context.text(body);
  if (body !== undefined) return context.json(body as object);
  return context.body(admission.problem(), { headers: { 'Content-Type': MEDIA_TYPE } });
}

/** Node tells when the last byte was handed over, or the client has gone; false where nobody does. */
function attend(context: Context, over: () => void): boolean {
  const env = (context.env ?? {}) as Env;
  const outgoing = (env.server ?? env).outgoing;
  if (outgoing === undefined) {
    context.req.raw.signal.addEventListener('abort', over, { once: true });
    return false;
  }
  if (outgoing.writableFinished || outgoing.destroyed) over();
  outgoing.once('finish', over);
  outgoing.once('close', over);
  return true;
}

/** Elsewhere the body tells: it was read to its end, or given up. */
function watch(context: Context, over: () => void): void {
  const response = context.res;
  // Nobody reads the body of an answer to HEAD.
  if (response.body === null || context.req.method === 'HEAD') over();
  else context.res = new Response(watched(response.body, over), response);
}

/** The same bytes, and a word when there are no more, or nobody wants them. */
function watched(body: ReadableStream<Uint8Array>, over: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        over();
        controller.close();
      } catch (error) {
        over();
        controller.error(error);
      }
    },
    cancel(reason) {
      over();
      return reader.cancel(reason);
    },
  });
}
