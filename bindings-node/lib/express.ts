// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import { IncomingMessage } from 'node:http';

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Decision } from './decision.js';
import { type Keys, keysOf } from './http/keys.js';
import { attend } from './http/node.js';
import type { RateLimitOptions } from './http/options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { expressTrust } from './http/trust.js';
import { nodeView } from './http/view.js';
import { Gate, newest, type Verdict } from './http.js';

declare global {
  namespace Express {
    interface Request {
      /** What `rateLimit` of tidegate/express decided about this request. */
      rateLimit?: Decision;
    }
  }
}

// Express 5 gives every request a shape of its own, so that a property more costs it as much as all else here: what is
// known of a request is kept beside it, and found through the prototype that all requests have in common.
const view = nodeView<Request>('tidegate/express', {
  trusts: expressTrust,
  memory: (request) => request.rawHeaders ?? request,
});

/** Applications whose requests have a `rateLimit`. */
const known = new WeakSet<object>();

/** Sees to it that a request says what was decided about it. */
function tell(request: Request, decision: Decision | undefined): void {
  const { app } = request;
  if (app !== undefined && known.has(app)) return;
  const requests = commonOf(request);
  if (app === undefined || requests === undefined) {
    if (decision !== undefined) request.rateLimit = decision;
    return;
  }
  known.add(app);
  if (Object.hasOwn(requests, 'rateLimit')) return;
  Object.defineProperty(requests, 'rateLimit', {
    configurable: true,
    get(this: Request): Decision | undefined {
      let verdict = newest<Request, Response>(view, this);
      while (verdict !== undefined && verdict.decision === undefined) verdict = verdict.before;
      return verdict?.decision;
    },
    // Whoever assigns another has the last word.
    set(this: Request, value: unknown) {
      Object.defineProperty(this, 'rateLimit', { value, configurable: true, enumerable: true, writable: true });
    },
  });
}

/** What the requests of all applications inherit from, before they are requests of Node; nothing when they do not. */
function commonOf(request: Request): object | undefined {
  let common: object | undefined;
  for (let next: object | null = Object.getPrototypeOf(request); next !== null; next = Object.getPrototypeOf(next)) {
    if (next === IncomingMessage.prototype) return common;
    common = next;
  }
  return undefined;
}

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
      tell(request, verdict.decision);
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
