// Koa 2 and 3.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { Context, Middleware, Response } from 'koa';
import { type Keys, keysOf } from './http/keys.js';
import { endWithResponse, waitFor } from './http/node-response.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter, type RequestAdapter } from './http/request-adapter.js';
import { RequestLimiter } from './http/request-limiter.js';

const node = nodeRequestAdapter('tidegate/koa');

const adapter: RequestAdapter<Context> = {
  name: node.name,
  method: (context) => context.method,
  path: (context) => context.path,
  header: (context, name) => node.header(context.req, name),
  peer: (context) => node.peer(context.req),
  overUnix: (context) => node.overUnix(context.req),
  trusts: { setting: 'app.proxy', of: (context) => context.app.proxy },
  user: (context) => context.state['user'],
  claims: (context) => context.state['auth'] ?? context.state['user'],
};

const keys: Keys<Context> = keysOf(adapter);
export const clientIp: Keys<Context>['clientIp'] = keys.clientIp;
export const header: Keys<Context>['header'] = keys.header;
export const user: Keys<Context>['user'] = keys.user;
export const claim: Keys<Context>['claim'] = keys.claim;

/** A middleware that limits requests. The Decision is in `context.state.rateLimit`. */
export function rateLimit(options: RateLimitOptions<Context, Response>): Middleware {
  const limiter = new RequestLimiter<Context, Response>(adapter, options);
  return async (context, next) => {
    const admission = await limiter.admit(context);
    if (admission === undefined) return next();
    context.state['rateLimit'] = admission.decision;
    const fields: Record<string, string> = {};
    admission.announce(setField, fields);
    context.set(fields);
    if (admission.admitted) {
      endWithResponse(admission, context.res, context.response);
      await waitFor(admission.delayMs);
      return next().catch((error: unknown) => {
        // Koa answers an error with the headers of the error, and no others.
        if (error instanceof Error) Object.assign(error, { headers: { ...fields, ...headersOf(error) } });
        throw error;
      });
    }
    context.status = admission.status;
    const body = await admission.denied(context.response);
    if (context.headerSent || (body === undefined && context.body !== undefined && context.body !== null))
      return undefined;
    if (body === undefined) context.type = MEDIA_TYPE;
    context.body = body ?? admission.problem();
    return undefined;
  };
}

function setField(fields: Record<string, string>, name: string, value: string): void {
  fields[name] = value;
}

function headersOf(error: Error): Record<string, string> | undefined {
  return (error as { headers?: Record<string, string> }).headers;
}
