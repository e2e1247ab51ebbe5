// Koa 2 and 3.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, Middleware, Response } from 'koa';
import { type Keys, keysOf } from './http/keys.js';
import { attend, turn } from './http/node.js';
import type { RateLimitOptions } from './http/options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeView, type View } from './http/view.js';
import { Gate } from './http.js';

const node = nodeView('tidegate/koa');

const view: View<Context> = {
  adapter: node.adapter,
  method: (context) => context.method,
  path: (context) => context.path,
  header: (context, name) => node.header(context.req, name),
  peer: (context) => node.peer(context.req),
  trusts: { setting: 'app.proxy', of: (context) => context.app.proxy },
  user: (context) => context.state['user'],
  claims: (context) => context.state['auth'] ?? context.state['user'],
};

const keys: Keys<Context> = keysOf(view);
export const clientIp: Keys<Context>['clientIp'] = keys.clientIp;
export const header: Keys<Context>['header'] = keys.header;
export const user: Keys<Context>['user'] = keys.user;
export const claim: Keys<Context>['claim'] = keys.claim;

/** A middleware that limits requests. The Decision is in `context.state.rateLimit`. */
export function rateLimit(options: RateLimitOptions<Context, Response>): Middleware {
  const gate = new Gate<Context, Response>(view, options);
  return async (context, next) => {
    const verdict = await gate.ask(context);
    if (verdict === undefined) return next();
    context.state['rateLimit'] = verdict.decision;
    const fields: Record<string, string> = {};
    verdict.announce(put, fields);
    context.set(fields);
    if (verdict.admitted) {
      attend(verdict, context.res, context.response);
      await turn(verdict.delayMs);
      return next().catch((error: unknown) => {
        // Koa answers an error with the headers that the error has, and no others.
        if (error instanceof Error) Object.assign(error, { headers: { ...fields, ...headersOf(error) } });
        throw error;
      });
    }
    context.status = verdict.status;
    const body = await verdict.denied(context.response);
    if (context.headerSent || (body === undefined && context.body !== undefined && context.body !== null))
      return undefined;
    if (body === undefined) context.type = MEDIA_TYPE;
    context.body = body ?? verdict.problem();
    return undefined;
  };
}

function put(fields: Record<string, string>, name: string, value: string): void {
  fields[name] = value;
}

function headersOf(error: Error): Record<string, string> | undefined {
  return (error as { headers?: Record<string, string> }).headers;
}
