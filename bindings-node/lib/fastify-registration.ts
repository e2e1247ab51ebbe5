// A registration of the plugin of Fastify, and what it limits. A context inherits the hooks of the contexts around it, and so it
// inherits their limits: a registration in a context adds its own. What a route says of itself replaces the `policy` and the
// `default` of all registrations, and the last one in the innermost context asks it.

import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { ConfigError } from './errors.js';
import type { Admission } from './http/admission.js';
import { isEnabled } from './http/enabled.js';
import { fastifyAdapter } from './http/fastify-adapter.js';
import { keysOf } from './http/keys.js';
import { hasLimit, routeOptions, routeParts, warnOfIdleLayer } from './http/layers.js';
import { knownNames } from './http/option-names.js';
import type { LayerOptions } from './http/rate-limit-options.js';
import { latestAdmission, RequestLimiter } from './http/request-limiter.js';

type Limits = RequestLimiter<FastifyRequest, FastifyReply> | undefined;

const registrations = new WeakMap<object, FastifyRegistration[]>();

/** The registrations of a context and of those around it, the innermost and last one first. */
function registrationsOf(server: FastifyInstance): FastifyRegistration[] {
  const all: FastifyRegistration[] = [];
  for (let context: object | null = server; context !== null; context = Object.getPrototypeOf(context)) {
    all.push(...(registrations.get(context) ?? []).toReversed());
  }
  return all;
}

export class FastifyRegistration {
  readonly #options: LayerOptions<FastifyRequest, FastifyReply>;
  readonly #prefix: string;
  /** Whether a route was declared that it limits. */
  #limitsRoutes = false;
  /** By the configuration of a route, which Fastify makes for each. */
  readonly #limits = new Map<unknown, Limits>();

  constructor(app: FastifyInstance, options: LayerOptions<FastifyRequest, FastifyReply>) {
    this.#options = options;
    this.#prefix = app.prefix;
    const before = registrations.get(app);
    if (before === undefined) registrations.set(app, [this]);
    else before.push(this);
    // Wrong options of the plugin are an error when it is registered.
    this.#limitsOf(undefined, undefined, [this]);
    if (options.default !== undefined) this.#limitsOf(undefined, this.#prefix, [this]);
    if (options.key === undefined) checkTrust(app);
    // Routes that were declared before it are limited too, and not announced.
    const seesAllRoutes = app.printRoutes().startsWith('(empty tree)');
    if (seesAllRoutes && !hasLimit(options) && isEnabled(options.enabled, fastifyAdapter.name)) {
      app.addHook('onReady', async () => {
        const example = "{ config: { rateLimit: '5/minute' } }";
        if (!this.#limitsRoutes) warnOfIdleLayer('the plugin of tidegate/fastify', 'no route', example);
      });
    }
  }

  /** Whether it says what routes have that say nothing themselves. */
  get #hasLimit(): boolean {
    return this.#options.policy !== undefined || this.#options.default !== undefined;
  }

  /** Checks what a route says when it is declared. */
  declare(app: FastifyInstance, route: RouteOptions): void {
    const { config, url } = route;
    for (const name of Object.keys(config ?? {})) {
      if (name !== 'rateLimit' && /^rate[-_]?limits?$/i.test(name)) {
        throw new ConfigError(
          `tidegate/fastify: the config of ${url} has ${name}, which is not read: ${knownNames(name, ['rateLimit'])}`,
        );
      }
    }
    const limits = this.#limitsOf(config?.rateLimit, url, registrationsOf(app));
    if (limits !== undefined) this.#limitsRoutes = true;
    if (limits?.settings.holdUntil === 'handler') route.handler = observed(route.handler);
  }

  /** The limits of a request's route. */
  limiterOf(request: FastifyRequest): Limits {
    const config = request.routeOptions?.config ?? (request as { routeConfig?: unknown }).routeConfig;
    const known = this.#limits.get(config);
    if (known !== undefined || this.#limits.has(config)) return known;
    const { rateLimit, url } = (config ?? {}) as { rateLimit?: unknown; url?: string };
    const { prefix } = request.server;
    // One route `/` below a prefix answers both, and Fastify 4 gives each a configuration.
    const place = prefix !== '' && url === `${prefix}/` ? prefix : url;
    const limits = this.#limitsOf(rateLimit, place, registrationsOf(request.server));
    this.#limits.set(config, limits);
    return limits;
  }

  #limitsOf(given: unknown, route: string | undefined, all: readonly FastifyRegistration[]): Limits {
    const { name } = fastifyAdapter;
    const own = routeOptions<FastifyRequest, FastifyReply>(given, name);
    const { policy, default: each, ...rest } = this.#options;
    const asksOwn = own !== undefined && own !== false && all[0] === this;
    let layer: LayerOptions<FastifyRequest, FastifyReply> = rest;
    if (asksOwn) layer = this.#options;
    else if (own === undefined) {
      // Every `policy` is asked, and the innermost `default`.
      const isDefault = all.find((registration) => registration.#hasLimit) === this;
      layer = isDefault ? { ...rest, policy, default: each } : { ...rest, policy };
    }
    const parts = routeParts(layer, asksOwn || own === false ? own : undefined, { layer: this.#prefix, route }, name);
    return parts && new RequestLimiter<FastifyRequest, FastifyReply>(fastifyAdapter, parts);
  }
}

/** A handler whose beginning and end the admissions of its requests are told. */
function observed(handler: RouteOptions['handler']): RouteOptions['handler'] {
  return function (request, reply) {
    const admissions: Admission<FastifyRequest, FastifyReply>[] = [];
    let admission = latestAdmission<FastifyRequest, FastifyReply>(fastifyAdapter, request);
    for (; admission !== undefined; admission = admission.before) admissions.push(admission);
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

const { clientIp } = keysOf(fastifyAdapter);

/** Refuses a setting of trusted proxies that believes every client, when the plugin is registered. */
function checkTrust(server: FastifyInstance): void {
  clientIp()({ server, headers: {}, socket: { remoteAddress: '127.0.0.1' } } as FastifyRequest);
}
