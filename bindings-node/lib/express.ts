// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import { IncomingMessage } from 'node:http';

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { placeFinder } from './express-place.js';
import type { Admission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { middlewareParts } from './http/layers.js';
import { endWithResponse, isClosed } from './http/node-response.js';
import { expressTrust } from './http/proxy-trust.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter } from './http/request-adapter.js';
import { latestAdmission, RequestLimiter } from './http/request-limiter.js';

declare global {
  namespace Express {
    interface Request {
      /** The Decision of `rateLimit` of tidegate/express about this request. */
      rateLimit?: Decision;
    }
  }
}

// Express 5 gives each request an object shape of its own, so that one more property costs it as much as everything else here.
// So the admissions of a request are kept beside it, and found through the prototype that all requests have in common.
const adapter = nodeRequestAdapter<Request>('tidegate/express', {
  trusts: expressTrust,
  memory: (request) => request.rawHeaders ?? request,
});

/** Applications whose requests have a `rateLimit`. */
const prepared = new WeakSet<object>();

/** Makes `request.rateLimit` return the Decision. */
function exposeDecision(request: Request, decision: Decision | undefined): void {
  const { app } = request;
  if (app !== undefined && prepared.has(app)) return;
  const prototype = commonPrototypeOf(request);
  if (app === undefined || prototype === undefined) {
    if (decision !== undefined) request.rateLimit = decision;
    return;
  }
  prepared.add(app);
  if (Object.hasOwn(prototype, 'rateLimit')) return;
  Object.defineProperty(prototype, 'rateLimit', {
    configurable: true,
    get(this: Request): Decision | undefined {
      let admission = latestAdmission<Request, Response>(adapter, this);
      while (admission !== undefined && admission.decision === undefined) admission = admission.before;
      return admission?.decision;
    },
    // A value that the application assigns stays.
    set(this: Request, value: unknown) {
      Object.defineProperty(this, 'rateLimit', { value, configurable: true, enumerable: true, writable: true });
    },
  });
}

/** The prototype that the requests of all applications share, directly above Node's; undefined for other requests. */
function commonPrototypeOf(request: Request): object | undefined {
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
export const fixed: Keys<Request>['fixed'] = keys.fixed;

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Request, Response>;

type ExpressAdmission = Admission<Request, Response> | undefined;

/** A middleware that limits requests. */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const place = placeFinder(() => middleware);
  const limiter = new RequestLimiter<Request, Response>(adapter, middlewareParts(options, adapter.name, place));
  const middleware: RequestHandler = (request, response, next) => {
    let admission: ExpressAdmission | Promise<ExpressAdmission>;
    try {
      admission = limiter.admit(request);
    } catch (error) {
      next(error);
      return;
    }
    // Without `await`, because one more promise costs a request as much as its check.
    if (admission instanceof Promise) admission.then((admission) => respond(admission, request, response, next), next);
    else respond(admission, request, response, next);
  };
  return middleware;
}

function respond(admission: ExpressAdmission, request: Request, response: Response, next: NextFunction): void {
  let delayMs = 0;
  try {
    if (admission !== undefined) {
      exposeDecision(request, admission.decision);
      admission.announce(setHeader, response);
      if (!admission.admitted) {
        refuse(admission, response).catch(next);
        return;
      }
      endWithResponse(admission, response, response);
      if (isClosed(response)) return;
      delayMs = admission.delayMs;
    }
  } catch (error) {
    next(error);
    return;
  }
  // Outside of the `try`, so that an error of a handler is not caught here.
  if (delayMs === 0) next();
  else {
    delay(delayMs).then(() => {
      if (!isClosed(response)) next();
    });
  }
}

function setHeader(response: Response, name: string, value: string): void {
  response.setHeader(name, value);
}

async function refuse(admission: Admission<Request, Response>, response: Response): Promise<void> {
  if (admission.settings.throwsRefusals) throw admission.refusal();
  response.status(admission.status);
  const body = await admission.denied(response).catch((error) => {
    // The status is the refusal's, and the error is no refusal.
    response.status(500);
    throw error;
  });
  if (response.headersSent) return;
  // Not through `send`, which would add a charset: JSON has none.
  if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(admission.problem());
  else response.send(body);
}
