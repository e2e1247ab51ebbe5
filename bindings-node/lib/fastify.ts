// Fastify 4 and 5.
//
//     await app.register(rateLimit, { limiter, policy: 'api' });
//     app.post('/login', { config: { rateLimit: { policy: '5/minute' } } }, handler);

import type { FastifyInstance, FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { ConfigError, describe } from './errors.js';
import { FastifyRegistration } from './fastify-registration.js';
import { fastifyAdapter } from './http/fastify-adapter.js';
import { type Keys, keysOf } from './http/keys.js';
import { checkLayer } from './http/layers.js';
import { endWithResponse, isClosed } from './http/node-response.js';
import type { LayerOptions, PolicyOption, RouteOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE } from './http/refusal.js';
import type { RefusalError } from './http/refusal-error.js';
import type { RequestLimiter } from './http/request-limiter.js';

/**
 * The limits of a route: a policy, or options that override those of the plugin. A `skip` of the plugin stays. False: the route is
 * not limited.
 */
export type RouteRateLimit = PolicyOption<FastifyRequest> | RouteOptions<FastifyRequest, FastifyReply> | false;

/** The options of the plugin. Without a policy only routes that name one are limited. */
export interface FastifyRateLimitOptions extends LayerOptions<FastifyRequest, FastifyReply> {
  /** The hook in which requests are checked: one after authentication, if the key is a user. Default `onRequest`. */
  hook?: (typeof HOOKS)[number] | undefined;
}

/** The options of the plugin, under the name that every adapter has. */
export type RateLimitOptions = FastifyRateLimitOptions;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The limits of this route. */
    rateLimit?: RouteRateLimit;
  }
  interface FastifyRequest {
    /** The Decision of `tidegate/fastify` about this request. */
    rateLimit: Decision | null;
  }
}

const HOOKS = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;

const keys: Keys<FastifyRequest> = keysOf(fastifyAdapter);
export const clientIp: Keys<FastifyRequest>['clientIp'] = keys.clientIp;
export const header: Keys<FastifyRequest>['header'] = keys.header;
export const user: Keys<FastifyRequest>['user'] = keys.user;
export const claim: Keys<FastifyRequest>['claim'] = keys.claim;
export const fixed: Keys<FastifyRequest>['fixed'] = keys.fixed;

type FastifyLimiter = RequestLimiter<FastifyRequest, FastifyReply>;

/** Refusals that were given to the application's error handler. */
const refusals = new WeakMap<FastifyRequest, RefusalError>();

/** The statuses of refusals that `onDenied` may have answered. */
const answered = new WeakMap<FastifyRequest, number>();

const plugin: FastifyPluginAsync<FastifyRateLimitOptions> = async (app, given) => {
  checkLayer(given, fastifyAdapter.name, ['hook']);
  const { hook = 'onRequest', ...options } = given;
  if (!HOOKS.includes(hook)) {
    throw new ConfigError(`tidegate/fastify: hook cannot be ${describe(hook)}: use one of ${HOOKS.join(', ')}`);
  }
  const registration = new FastifyRegistration(app, options);
  if (!app.hasRequestDecorator('rateLimit')) app.decorateRequest('rateLimit', null);
  // Wrong options of a route are an error when the route is declared.
  app.addHook('onRoute', function (this: FastifyInstance, route) {
    registration.declare(this, route);
  });
  app.addHook(hook, async (request: FastifyRequest, reply: FastifyReply) => {
    const limiter = registration.limiterOf(request);
    return limiter && respond(limiter, request, reply);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    const status = payload instanceof Response ? answered.get(request) : undefined;
    if (status !== undefined) return done(null, asRefusal(payload as Response, status));
    const refusal = reply.statusCode === 429 || reply.statusCode === 503 ? refusals.get(request) : undefined;
    if (refusal === undefined || !isFrameworkAnswer(payload, refusal)) return done(null, payload);
    refusals.delete(request);
    const body = Buffer.from(refusal.problem());
    reply.header('content-type', MEDIA_TYPE).header('content-length', String(body.length));
    done(null, body);
  });
};

async function respond(limiter: FastifyLimiter, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const admission = await limiter.admit(request);
  if (admission === undefined) return undefined;
  request.rateLimit = admission.decision ?? null;
  admission.announce(setHeader, reply);
  if (admission.admitted) {
    endWithResponse(admission, reply.raw, reply);
    await delay(admission.delayMs);
    return isClosed(reply.raw) ? reply.hijack() : undefined;
  }
  reply.code(admission.status);
  answered.set(request, admission.status);
  const body = await admission.denied(reply).catch((error) => {
    // The status is the refusal's, and the error is no refusal.
    reply.code(500);
    throw error;
  });
  if (reply.sent) return reply;
  if (body !== undefined) return reply.send(body);
  // The application's error handler may answer. Where it does not, the problem is sent.
  const refusal = admission.refusal();
  refusals.set(request, refusal);
  throw refusal;
}

/** Whether an answer to a refusal is the one that Fastify itself makes of an error. */
function isFrameworkAnswer(payload: unknown, { code, message }: RefusalError): boolean {
  if (typeof payload !== 'string') return false;
  try {
    const answer = JSON.parse(payload) as Record<string, unknown>;
    const names = Object.keys(answer).sort().join();
    return names === 'code,error,message,statusCode' && answer['code'] === code && answer['message'] === message;
  } catch {
    return false;
  }
}

function setHeader(reply: FastifyReply, name: string, value: string): void {
  reply.header(name, value);
}

/** The plugin. It applies to the context in which it is registered, not to a context of its own. */
export const rateLimit = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'tidegate',
  [Symbol.for('plugin-meta')]: { name: 'tidegate', fastify: '4.x || 5.x' },
  /** For programs that load the plugin as `require(…).default`, whatever they have. */
  default: plugin,
});

export default rateLimit;
