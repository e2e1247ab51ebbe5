// Hono 4, on Node, Bun and Deno.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, MiddlewareHandler } from 'hono';
import { turn } from './http/node.js';
import { keysOf } from './http/keys.js';
import type { RateLimitOptions } from './http/options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import type { View } from './http/view.js';
import { Gate, type Verdict } from './http.js';
import type { Decision } from './index.js';

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

const view: View<Context> = {
  adapter: 'tidegate/hono',
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

export const { clientIp, header, user, claim } = keysOf(view);

/** A middleware that limits requests. The Decision is `context.get('rateLimit')`. */
export function rateLimit(options: RateLimitOptions<Context, Response>): MiddlewareHandler {
  const gate = new Gate<Context, Response>(view, options);
  return async (context, next) => {
    const verdict = await gate.ask(context);
    if (verdict === undefined) return next();
    context.set('rateLimit', verdict.decision);
    if (verdict.admitted) {
      await turn(verdict.delayMs);
      await next();
      // Only now: a handler that throws or returns a response of its own making loses what was set before.
      for (const [name, value] of verdict.fields()) context.header(name, value);
      if (verdict.pending) attend(verdict, context);
      return undefined;
    }
    for (const [name, value] of verdict.fields()) context.header(name, value);
    context.status(verdict.status as 429 | 503);
    const body = await verdict.denied(context.res);
    if (body instanceof Response) return body;
    if (body !== undefined) return typeof body === 'string' ? context.text(body) : context.json(body as object);
    return context.body(verdict.problem(), { headers: { 'Content-Type': MEDIA_TYPE } });
  };
}

/** Does what is due when the last byte was handed over, or the client has gone. */
function attend(verdict: Verdict<Context, Response>, context: Context): void {
  const response = context.res;
  const over = (): void => verdict.over(response);
  const env = (context.env ?? {}) as Env;
  const outgoing = (env.server ?? env).outgoing;
  if (outgoing !== undefined) {
    if (outgoing.writableFinished || outgoing.destroyed) return over();
    outgoing.once('finish', over);
    outgoing.once('close', over);
    return;
  }
  // Nobody reads the body of an answer to HEAD.
  if (response.body === null || context.req.method === 'HEAD') return over();
  context.res = new Response(watched(response.body, over), response);
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
