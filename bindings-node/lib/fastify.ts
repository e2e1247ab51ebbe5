// Fastify 4 and 5.
//
//     await app.register(rateLimit, { limiter, policy: 'api' });
//     app.post('/login', { config: { rateLimit: { policy: '5/minute' } } }, handler);

import type {
  FastifyInstance,
  FastifyPluginAsync,
  FastifyReply,
  FastifyRequest,
  RouteOptions as FastifyRoute,
} from 'fastify';
import type { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { knownNames } from './given-options.js';
import { type Adapter, nodeRequestAdapter } from './http/adapter.js';
import { admit, latestAdmission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { fastifyTrust } from './http/proxy-trust.js';
import type { LayerOptions, PolicyOption, RouteOptions } from './http/rate-limit-options.js';
import { asRefusal, MEDIA_TYPE, type RefusalError, refusalError } from './http/refusal.js';
import { checkLayer, routeLimits, routeOptions, type Settings, warnIfIdle } from './http/settings.js';
import { kept } from './kept.js';

const adapter: Adapter<FastifyRequest, FastifyReply> = {
  ...nodeRequestAdapter<FastifyRequest>('tidegate/fastify'),
  trusts: fastifyTrust,
  seesHandlers: true,
  throwsRefusals: true,
  setField: (reply, name, value) => reply.header(name, value),
  setStatus: (reply, status) => reply.code(status),
  refuse(reply, body, refused) {
    if (reply.sent) return reply;
    if (body !== undefined) return reply.send(body);
    // The application's error handler may answer. If it does not, the problem is sent.
    const refusal = refusalError(refused);
    refusals.set(reply.request, refusal);
    throw refusal;
  },
};

/**
 * The limits of a route: a policy, or options that override those of the plugin. A `skip` of the plugin stays. With
 * false the route is not limited.
 */
export type RouteRateLimit = PolicyOption<FastifyRequest> | RouteOptions<FastifyRequest, FastifyReply> | false;

/** The options of the plugin. Without a policy only routes that name one are limited. */
export interface FastifyRateLimitOptions extends LayerOptions<FastifyRequest, FastifyReply> {
  /** The hook that checks requests. If the key is a user, choose one after authentication. Default `onRequest`. */
  hook?: (typeof HOOKS)[number] | undefined;
}

/** The options of the plugin, under the name that every adapter has. */
export type RateLimitOptions = FastifyRateLimitOptions;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The limits of this route. */
    rateLimit?: RouteRateLimit | undefined;
  }
  interface FastifyRequest {
    /** The Decision of `tidegate/fastify` about this request. */
    rateLimit: Decision | null;
  }
}

const HOOKS = ['onRequest', 'preParsing', 'preValidation', 'preHandler'] as const;

export const { clientIp, header, user, claim, fixed }: Keys<FastifyRequest> = keysOf(adapter);

type FastifySettings = Settings<FastifyRequest, FastifyReply>;

/** Refusals that were given to the application's error handler. */
const refusals = new WeakMap<FastifyRequest, RefusalError>();

/** The statuses of refusals that `onDenied` may have answered. */
const answered = new WeakMap<FastifyRequest, number>();

/** The properties with the configuration of a route in the first releases of Fastify 4. */
interface OlderRequest {
  readonly routeConfig?: unknown;
  readonly context?: { readonly config?: unknown };
}

const plugin: FastifyPluginAsync<FastifyRateLimitOptions> = async (app, given) => {
  const { hook = 'onRequest', ...options } = checkLayer(given, adapter.name, ['hook']);
  if (!HOOKS.includes(hook)) {
    throw new ConfigError(`tidegate/fastify: hook must be one of ${HOOKS.join(', ')}, not ${describe(hook)}`);
  }
  const registration = new FastifyRegistration(app, options);
  if (!app.hasRequestDecorator('rateLimit')) app.decorateRequest('rateLimit', null);
  // Wrong options of a route are an error when the route is declared.
  app.addHook('onRoute', function (this: FastifyInstance, route) {
    registration.declare(this, route);
  });
  app.addHook(hook, async (request: FastifyRequest, reply: FastifyReply) => {
    const settings = registration.settingsOf(request);
    return settings && respond(settings, request, reply);
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

async function respond(settings: FastifySettings, request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  const admission = await admit(settings, request);
  if (admission === undefined) return undefined;
  request.rateLimit = admission.decision ?? null;
  admission.announce(reply);
  if (admission.admitted) return (await admission.mayBegin(reply.raw, reply)) ? undefined : reply.hijack();
  answered.set(request, admission.status);
  return admission.refuse(reply);
}

/** True if the answer to a refusal is the one that Fastify itself makes from an error. */
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

const registrations = new WeakMap<object, FastifyRegistration[]>();

/** Returns the registrations of a context and of those around it. The last one in the innermost context comes first. */
function registrationsOf(server: FastifyInstance): FastifyRegistration[] {
  const all: FastifyRegistration[] = [];
  for (let context: object | null = server; context !== null; context = Object.getPrototypeOf(context)) {
    all.push(...(registrations.get(context) ?? []).toReversed());
  }
  return all;
}

/**
 * A registration of the plugin, and its limits. A context inherits the hooks of the contexts around it, and so their
 * limits. A registration in a context adds its own limits. The limits of a route replace the `policy` and the `default`
 * of all registrations, and the last registration in the innermost context asks them.
 */
class FastifyRegistration {
  readonly #prefix: string;
  /** True if a route was declared that it limits. */
  #limitsRoutes = false;
  /** The settings by the configuration of a route. Fastify makes one configuration for each route. */
  readonly #settings = new Map<unknown, FastifySettings | undefined>();

  constructor(
    app: FastifyInstance,
    readonly options: LayerOptions<FastifyRequest, FastifyReply>,
  ) {
    this.#prefix = app.prefix;
    kept(registrations, app, () => []).push(this);
    // Wrong options of the plugin are an error when it is registered.
    this.#make(undefined, undefined, [this]);
    if (options.default !== undefined) this.#make(undefined, this.#prefix, [this]);
    // A setting of trusted proxies that believes every client is an error, too.
    const request = { server: app, headers: {}, socket: { remoteAddress: '127.0.0.1' } };
    if (options.key === undefined) clientIp()(request as FastifyRequest);
    // Routes that were declared before the plugin are limited too, but Fastify does not announce them to it.
    if (!app.printRoutes().startsWith('(empty tree)')) return;
    app.addHook('onReady', async () => {
      if (this.#limitsRoutes) return;
      warnIfIdle(options, adapter.name, ['plugin', 'route', "{ config: { rateLimit: '5/minute' } }"]);
    });
  }

  /** Checks the limits of a route when it is declared. */
  declare(app: FastifyInstance, route: FastifyRoute): void {
    const { config, url } = route;
    const wrong = Object.keys(config ?? {}).find((name) => name !== 'rateLimit' && /^rate[-_]?limits?$/i.test(name));
    if (wrong !== undefined) {
      throw new ConfigError(
        `tidegate/fastify: the config of ${url} has ${wrong}, which is not read: ${knownNames(wrong, ['rateLimit'])}`,
      );
    }
    const settings = this.#make(config?.rateLimit, url, registrationsOf(app));
    if (settings !== undefined) this.#limitsRoutes = true;
    if (settings?.options.holdUntil === 'handler') route.handler = observed(route.handler);
  }

  /** Returns the limits of a request's route. */
  settingsOf(request: FastifyRequest): FastifySettings | undefined {
    const { routeConfig, context } = request as OlderRequest;
    const config = request.routeOptions?.config ?? routeConfig ?? context?.config;
    return kept(this.#settings, config, () => {
      const { rateLimit, url } = (config ?? {}) as { rateLimit?: unknown; url?: string };
      const { prefix } = request.server;
      // One route `/` below a prefix answers with and without the slash, and Fastify 4 gives each a configuration.
      const place = prefix !== '' && url === `${prefix}/` ? prefix : url;
      return this.#make(rateLimit, place, registrationsOf(request.server));
    });
  }

  #make(given: unknown, route: string | undefined, all: readonly FastifyRegistration[]): FastifySettings | undefined {
    const own = routeOptions<FastifyRequest>(given, adapter.name);
    if (own === false) return undefined;
    const isInnermost = all[0] === this;
    let layer: LayerOptions<FastifyRequest, FastifyReply> = this.options;
    if (own !== undefined && !isInnermost) layer = { ...layer, policy: undefined, default: undefined };
    // Every `policy` is asked, but only the innermost `default`.
    const first = all.find(({ options }) => (options.policy ?? options.default) !== undefined);
    if (own === undefined && first !== this) layer = { ...layer, default: undefined };
    return routeLimits(adapter, layer, isInnermost ? own : undefined, this.#prefix, route);
  }
}

/** Wraps a handler so that the admissions of a request learn when it begins and ends. */
function observed(handler: FastifyRoute['handler']): FastifyRoute['handler'] {
  return function (request, reply) {
    const admissions = latestAdmission(adapter, request)?.passed ?? [];
    const ended = (): void => {
      for (const admission of admissions) admission.handlerEnds(reply);
    };
    for (const admission of admissions) admission.handlerBegins();
    try {
      const result: unknown = handler.call(this, request, reply);
      // A handler that returns no promise ends with its response.
      if (result instanceof Promise) result.then(ended, ended);
      else ended();
      return result;
    } catch (error) {
      ended();
      throw error;
    }
  };
}

/** The plugin. It applies to the context that registers it, and makes no context for itself. */
export const rateLimit = Object.assign(plugin, {
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'tidegate',
  [Symbol.for('plugin-meta')]: { name: 'tidegate', fastify: '4.x || 5.x' },
  /** For programs that load the plugin as `require(…).default`. */
  default: plugin,
});

export default rateLimit;
