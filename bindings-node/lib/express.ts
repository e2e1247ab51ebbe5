// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Decision } from './decision.js';
import { type Keys, keysOf } from './http/keys.js';
import { attend } from './http/node.js';
import type { RateLimitOptions } from './http/options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { expressTrust } from './http/trust.js';
import { nodeView } from './http/view.js';
import { Gate, type Verdict } from './http.js';

declare global {
  namespace Express {
    interface Request {
      /** What `rateLimit` of tidegate/express decided about this request. */
      rateLimit?: Decision;
    }
  }
}

const view = nodeView<Request>('tidegate/express', { trusts: expressTrust });

const keys: Keys<Request> = keysOf(view);
export const clientIp: Keys<Request>['clientIp'] = keys.clientIp;
export const header: Keys<Request>['header'] = keys.header;
export const user: Keys<Request>['user'] = keys.user;
export const claim: Keys<Request>['claim'] = keys.claim;

type ExpressVerdict = Verdict<Request, Response> | undefined;

/** A middleware that limits requests. */
export function rateLimit(options: RateLimitOptions<Request, Response>): RequestHandler {
  const gate = new Gate<Request, Response>(view, options);
  return (request, response, next) => {
    let verdict: ExpressVerdict | Promise<ExpressVerdict>;
    try {
      verdict = gate.ask(request);
    } catch (error) {
      next(error);
      return;
    }
    // A promise more would cost every request as much as its check.
    if (verdict instanceof Promise) verdict.then((verdict) => pass(verdict, request, response, next), next);
    else pass(verdict, request, response, next);
  };
}

function pass(verdict: ExpressVerdict, request: Request, response: Response, next: NextFunction): void {
  let delayMs = 0;
  try {
    if (verdict !== undefined) {
      if (verdict.decision !== undefined) request.rateLimit = verdict.decision;
      verdict.announce(put, response);
      if (!verdict.admitted) {
        refuse(verdict, response).catch(next);
        return;
      }
      attend(verdict, response, response);
      delayMs = verdict.delayMs;
    }
  } catch (error) {
    next(error);
    return;
  }
  // Outside, so that what a handler throws is its own.
  if (delayMs > 0) setTimeout(next, delayMs);
  else next();
}

function put(response: Response, name: string, value: string): void {
  response.setHeader(name, value);
}

async function refuse(verdict: Verdict<Request, Response>, response: Response): Promise<void> {
  response.status(verdict.status);
  const body = await verdict.denied(response);
  if (response.headersSent) return;
  // Not through send: it would add a charset, which JSON has not.
  if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(verdict.problem());
  else response.send(body);
}
