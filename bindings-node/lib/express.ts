// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { attend, turn } from './http/node.js';
import { type Keys, keysOf } from './http/keys.js';
import type { RateLimitOptions } from './http/options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { expressTrust } from './http/trust.js';
import { nodeView } from './http/view.js';
import { Gate } from './http.js';
import type { Decision } from './decision.js';

declare global {
  // biome-ignore lint/style/noNamespace: the way in which Express lets requests be extended
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

/** A middleware that limits requests. */
export function rateLimit(options: RateLimitOptions<Request, Response>): RequestHandler {
  const gate = new Gate<Request, Response>(view, options);
  return (request, response, next) => {
    pass(gate, request, response).then((go) => go && next(), next);
  };
}

async function pass(gate: Gate<Request, Response>, request: Request, response: Response): Promise<boolean> {
  const verdict = await gate.ask(request);
  if (verdict === undefined) return true;
  if (verdict.decision !== undefined) request.rateLimit = verdict.decision;
  for (const [name, value] of verdict.fields()) response.setHeader(name, value);
  if (verdict.admitted) {
    attend(verdict, response, response);
    await turn(verdict.delayMs);
    return true;
  }
  response.status(verdict.status);
  const body = await verdict.denied(response);
  if (response.headersSent) return false;
  // Not through send: it would add a charset, which JSON has not.
  if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(verdict.problem());
  else response.send(body);
  return false;
}
