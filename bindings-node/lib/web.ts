// Handlers of `(Request) => Response`: Next, SvelteKit, Astro, React Router, h3, Nitro, Elysia, Bun, Deno.
//
//     const limit = rateLimit({ limiter, policy: 'api' });
//     export const GET = limit((request) => new Response('hello'));

import type { Decision } from './decision.js';
import type { Adapter, Awaitable } from './http/adapter.js';
import { admit, latestAdmission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { Unrouted } from './http/notation-place.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE } from './http/refusal.js';
import { middlewareLimits, type Settings } from './http/settings.js';
import * as hosts from './http/web-host.js';

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Request, Response>;

/** A request that was checked. Undefined is the Decision of a request without a limit. */
export type LimitedRequest<R extends Request = Request> = R & { rateLimit?: Decision | undefined };

/** The result of a check: a refusal to return, or an admission, which needs the response. */
export type WebAdmission = Refusal | Admitted;

/** A refusal. Return its response. */
export interface Refusal {
  readonly refused: true;
  readonly decision: Decision | undefined;
  readonly response: Response;
}

/** An admission. Return the result of `respond`. */
export interface Admitted {
  readonly refused: false;
  readonly decision: Decision | undefined;
  readonly response?: undefined;
  /** Returns the response with the fields that announce the limits. Holds end with its body. */
  respond<R extends Response>(response: R): R;
  /** Ends an admission that gets no response, because your code threw an error. */
  end(): void;
}

/** Limits handlers, or single requests. */
export interface Limit {
  /** Returns the handler with the limit. It takes the same arguments. */
  <R extends Request, Rest extends unknown[], A>(
    handler: (request: LimitedRequest<R>, ...rest: Rest) => Awaitable<A>,
  ): (request: R, ...rest: Rest) => Promise<A | Response>;
  /** Checks one request, and waits for the delay of a `leaky-bucket`. */
  check(request: Request, host?: hosts.GivenHost): Promise<WebAdmission>;
}

/** The response to a request, as soon as there is one. */
interface Reply {
  response?: Response;
}

const adapter: Adapter<Request, Reply> = {
  ...hosts.webRequestAdapter('tidegate/web'),
  seesHandlers: true,
  setField: ({ response }, name, value) => response?.headers.set(name, value),
  setStatus(reply, status) {
    reply.response = new Response(null, { status, headers: reply.response?.headers ?? {} });
  },
  refuse({ response }, body, refused) {
    const { status, headers } = response as Response;
    if (body instanceof Response) {
      const answer = new Response(body.body, asRefusal(body, status));
      for (const [name, value] of headers) if (!answer.headers.has(name)) answer.headers.set(name, value);
      return answer;
    }
    if (typeof body === 'string') return new Response(body, { status, headers });
    if (body !== undefined) return Response.json(body, { status, headers });
    headers.set('Content-Type', MEDIA_TYPE);
    return new Response(refused.problem(), { status, headers });
  },
  given: (reply) => reply.response ?? hosts.clientGone(),
};

export const { clientIp, header, user, claim, fixed }: Keys<Request> = keysOf(adapter);

/** Returns a function that limits handlers. You find the Decision in `request.rateLimit`. */
export function rateLimit(options: RateLimitOptions): Limit {
  const settings = middlewareLimits<Request, Reply>(adapter, options, () => new Unrouted(''));
  const limit: Pick<Limit, 'check'> & ((...given: never) => unknown) = Object.assign(
    <R extends Request, Rest extends unknown[], A>(handler: (request: R, ...rest: Rest) => Awaitable<A>) =>
      async (request: R, ...rest: Rest): Promise<A | Response> => {
        const admission = await check(settings, request, rest[0] as hosts.GivenHost);
        if (admission.refused) return admission.response;
        try {
          return admission.respond((await handler(request, ...rest)) as Response);
        } catch (error) {
          admission.end();
          throw error;
        }
      },
    { check: (request: Request, host?: hosts.GivenHost) => check(settings, request, host) },
  );
  return limit as Limit;
}

async function check(
  settings: Settings<Request, Reply>,
  request: Request,
  given: hosts.GivenHost,
): Promise<WebAdmission> {
  const host = hosts.remembered(request, given);
  const ending = hosts.endingOf(host, request);
  const admission = await admit(settings, request);
  if (admission === undefined)
    return { refused: false, decision: undefined, respond: (response) => response, end() {} };
  const { decision } = admission;
  const reply: Reply = {};
  (request as LimitedRequest).rateLimit = decision;
  if (!admission.admitted) {
    reply.response = new Response();
    if (settings.options.onDenied !== 'throw') admission.announce(reply);
    return { refused: true, decision, response: (await admission.refuse(reply)) as Response };
  }
  if (!(await admission.mayBegin(ending, reply))) return { refused: true, decision, response: hosts.clientGone() };
  admission.handlerBegins();
  const end = (): void => admission.end(reply);
  return {
    refused: false,
    decision,
    respond(response) {
      reply.response = response;
      admission.handlerEnds(reply);
      // An upgrade to a websocket has no response in Bun, and one that cannot be copied in Deno.
      if (!(response?.status >= 200)) {
        end();
        return response;
      }
      // It is a copy, because the fields of a response that came from elsewhere cannot be changed.
      const copy = new Response(response.body, response);
      latestAdmission(adapter, request)?.announce({ response: copy });
      const isSeen = host.outgoing !== undefined || !admission.needsEnd;
      return (isSeen ? copy : hosts.endingWithBody(copy, request.method, end)) as typeof response;
    },
    end() {
      reply.response ??= new Response(null, { status: 500 });
      admission.handlerEnds(reply);
      end();
    },
  };
}
