// Fastify 5.
//
//     await app.register(rateLimit, { limiter, policy: 'api' });
//     app.post('/login', { config: { rateLimit: { policy: '5/minute' } } }, handler);

import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';
import type { Decision } from './decision.js';
import { ConfigError } from './errors.js';
import { RequestLimiter } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { attend, turn } from './http/node-response.js';
import { fastifyTrust } from './http/proxy-trust.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { nodeRequestAdapter } from './http/request-adapter.js';

type Options = RateLimitOptions<FastifyRequest, FastifyReply>;

/** What a route says about its limits; it is laid over what the plugin was told. False: this route is not limited. */
export type RouteRateLimit = Partial<Options> | false;

/** What the plugin is told. Without a policy only routes that name one are limited. */
export interface FastifyRateLimitOptions extends Omit<Options, 'policy'> {
  policy?: Options['policy'];
  /** When requests are asked about: after authentication, if the key is a user. Default `onRequest`. */
  hook?: (typeof HOOKS)[number];
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The limits of this route. */
    rateLimit?: RouteRateLimit;
  }
  interface FastifyRequest {
    /** What `tidegate/fastify` decided about this request. */
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
  const requestLimiters = new Map<unknown, FastifyLimiter | undefined>();
  const requestLimiterOf = (route: RouteRateLimit | undefined, place = ''): FastifyLimiter | undefined => {
    const known = requestLimiters.get(route);
    if (known !== undefined || requestLimiters.has(route)) return known;
    const options = { ...common, ...route };
    const limited = route !== false && (route !== undefined || common.policy !== undefined);
    const requestLimiter = limited
      ? new RequestLimiter<FastifyRequest, FastifyReply>(adapter, options as Options, place)
      : undefined;
    requestLimiters.set(route, requestLimiter);
    return requestLimiter;
  };
  requestLimiterOf(undefined);
  if (!app.hasRequestDecorator('rateLimit')) app.decorateRequest('rateLimit', null);
  // What is wrong with a route is found when it is declared.
  app.addHook('onRoute', ({ config, method, url }) => void requestLimiterOf(config?.rateLimit, `${method} ${url}`));
  app.addHook(hook, async (request: FastifyRequest, reply: FastifyReply) => {
    const requestLimiter = requestLimiterOf(request.routeOptions.config?.rateLimit);
    return requestLimiter && pass(requestLimiter, request, reply);
  });
};

async function pass(requestLimiter: FastifyLimiter, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const admission = await requestLimiter.ask(request);
  if (admission === undefined) return undefined;
  request.rateLimit = admission.decision ?? null;
  admission.announce(put, reply);
  if (admission.admitted) {
    attend(admission, reply.raw, reply);
    await turn(admission.delayMs);
    return undefined;
  }
  reply.code(admission.status);
  const body = await admission.denied(reply);
  if (reply.sent) return reply;
  if (body !== undefined) return reply.send(body);
  // As bytes: to a text Fastify would add a charset, which JSON has not.
  return reply.type(MEDIA_TYPE).send(Buffer.from(admission.problem()));
}

function put(reply: FastifyReply, name: string, value: string): void {
  reply.header(name, value);
}

/** The plugin. It holds for the context it is registered in, not for one of its own. */
export const rateLimit = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'tidegate',
  [Symbol.for('plugin-meta')]: { name: 'tidegate', fastify: '5.x' },
});

export default rateLimit;
