// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import { IncomingMessage } from 'node:http';

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Decision } from './decision.js';
import { type Admission, newest, RequestLimiter } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { attend } from './http/node-response.js';
import { expressTrust } from './http/proxy-trust.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter } from './http/request-adapter.js';

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
const adapter = nodeRequestAdapter<Request>('tidegate/express', {
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
      let admission = newest<Request, Response>(adapter, this);
      while (admission !== undefined && admission.decision === undefined) admission = admission.before;
      return admission?.decision;
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

const keys: Keys<Request> = keysOf(adapter);
export const clientIp: Keys<Request>['clientIp'] = keys.clientIp;
export const header: Keys<Request>['header'] = keys.header;
export const user: Keys<Request>['user'] = keys.user;
export const claim: Keys<Request>['claim'] = keys.claim;

type ExpressAdmission = Admission<Request, Response> | undefined;

/** A middleware that limits requests. */
export function rateLimit(options: RateLimitOptions<Request, Response>): RequestHandler {
  const requestLimiter = new RequestLimiter<Request, Response>(adapter, options);
  return (request, response, next) => {
    let admission: ExpressAdmission | Promise<ExpressAdmission>;
    try {
      admission = requestLimiter.ask(request);
    } catch (error) {
      next(error);
      return;
    }
    // A promise more would cost every request as much as its check.
    if (admission instanceof Promise) admission.then((admission) => pass(admission, request, response, next), next);
    else pass(admission, request, response, next);
  };
}

function pass(admission: ExpressAdmission, request: Request, response: Response, next: NextFunction): void {
  let delayMs = 0;
  try {
    if (admission !== undefined) {
      tell(request, admission.decision);
      admission.announce(put, response);
      if (!admission.admitted) {
        refuse(admission, response).catch(next);
        return;
      }
      attend(admission, response, response);
      delayMs = admission.delayMs;
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

async function refuse(admission: Admission<Request, Response>, response: Response): Promise<void> {
  response.status(admission.status);
  const body = await admission.denied(response);
  if (response.headersSent) return;
  // Not through send: it would add a charset, which JSON has not.
  if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(admission.problem());
  else response.send(body);
}
