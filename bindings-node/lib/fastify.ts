// Fastify 5.
//
//     await app.register(rateLimit, { limiter, policy: 'api' });
//     app.post('/login', { config: { rateLimit: { policy: '5/minute' } } }, handler);

import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import type { Decision } from './decision.js';
import { ConfigError } from './errors.js';
import { type Keys, keysOf } from './http/keys.js';
import { endWithResponse, waitFor } from './http/node-response.js';
import { fastifyTrust } from './http/proxy-trust.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter } from './http/request-adapter.js';
import { RequestLimiter } from './http/request-limiter.js';

type Options = RateLimitOptions<FastifyRequest, FastifyReply>;

/** The options of a route, which override those of the plugin. False: the route is not limited. */
export type RouteRateLimit = Partial<Options> | false;

/** The options of the plugin. Without a policy only routes that name one are limited. */
export interface FastifyRateLimitOptions extends Omit<Options, 'policy'> {
  policy?: Options['policy'];
  /** The hook in which requests are checked: one after authentication, if the key is a user. Default `onRequest`. */
  hook?: (typeof HOOKS)[number];
}

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

const adapter = nodeRequestAdapter<FastifyRequest>('tidegate/fastify', { trusts: fastifyTrust });

const keys: Keys<FastifyRequest> = keysOf(adapter);
export const clientIp: Keys<FastifyRequest>['clientIp'] = keys.clientIp;
export const header: Keys<FastifyRequest>['header'] = keys.header;
export const user: Keys<FastifyRequest>['user'] = keys.user;
export const claim: Keys<FastifyRequest>['claim'] = keys.claim;

type FastifyLimiter = RequestLimiter<FastifyRequest, FastifyReply>;

const plugin: FastifyPluginAsync<FastifyRateLimitOptions> = async (app, { hook = 'onRequest', ...common }) => {
  if (!HOOKS.includes(hook))
    throw new ConfigError(`tidegate/fastify: hook cannot be "${hook}": use one of ${HOOKS.join(', ')}`);
  const limiters = new Map<unknown, FastifyLimiter | undefined>();
  const limiterOf = (routeOptions: RouteRateLimit | undefined, route = ''): FastifyLimiter | undefined => {
    const known = limiters.get(routeOptions);
    if (known !== undefined || limiters.has(routeOptions)) return known;
    const options = { ...common, ...routeOptions };
    const limited = routeOptions !== false && (routeOptions !== undefined || common.policy !== undefined);
    const limiter = limited
      ? new RequestLimiter<FastifyRequest, FastifyReply>(adapter, options as Options, route)
      : undefined;
    limiters.set(routeOptions, limiter);
    return limiter;
  };
  limiterOf(undefined);
  if (!app.hasRequestDecorator('rateLimit')) app.decorateRequest('rateLimit', null);
  // Wrong options of a route are an error when the route is declared.
  app.addHook('onRoute', ({ config, method, url }) => void limiterOf(config?.rateLimit, `${method} ${url}`));
  app.addHook(hook, async (request: FastifyRequest, reply: FastifyReply) => {
    const limiter = limiterOf(request.routeOptions.config?.rateLimit);
    return limiter && respond(limiter, request, reply);
  });
};

async function respond(limiter: FastifyLimiter, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const admission = await limiter.admit(request);
  if (admission === undefined) return undefined;
  request.rateLimit = admission.decision ?? null;
  admission.announce(setHeader, reply);
  if (admission.admitted) {
    endWithResponse(admission, reply.raw, reply);
    await waitFor(admission.delayMs);
    return undefined;
  }
  reply.code(admission.status);
  const body = await admission.denied(reply);
  if (reply.sent) return reply;
  if (body !== undefined) return reply.send(body);
  // As bytes: to a string Fastify would add a charset, and JSON has none.
  return reply.type(MEDIA_TYPE).send(Buffer.from(admission.problem()));
}

function setHeader(reply: FastifyReply, name: string, value: string): void {
  reply.header(name, value);
}

/** The plugin. It applies to the context in which it is registered, not to a context of its own. */
export const rateLimit = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'tidegate',
  [Symbol.for('plugin-meta')]: { name: 'tidegate', fastify: '5.x' },
});

export default rateLimit;
