// The guard of Nest and its decorators.

import type { ServerResponse } from 'node:http';
import {
  type CanActivate,
  type CustomDecorator,
  type ExecutionContext,
  Inject,
  Injectable,
  type Type,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { delay } from './delay.js';
import { ConfigError } from './errors.js';
import { isEnabled } from './http/enabled.js';
import { checkLayer, hasLimit, type LayerPlaces, routeOptions, routeParts, warnOfIdleLayer } from './http/layers.js';
import { endWithResponse, isClosed } from './http/node-response.js';
import type { LayerOptions, PolicyOption, RouteOptions } from './http/rate-limit-options.js';
import { RequestLimiter } from './http/request-limiter.js';
import { callOf, type NestCall, type NestRequest, type NestResponse, nestAdapter } from './nest-call.js';
import { isAnythingLimited, LIMITS, limitsMetadata, SKIPS, skipsMetadata, withoutPolicies } from './nest-metadata.js';
import { controllerPlace, handlerPlace } from './nest-place.js';
import { clientGone, exceptionOf } from './nest-refusal.js';

/** The options of a guard. Without a policy only handlers that name one are limited. */
export interface RateLimitGuardOptions extends LayerOptions<NestRequest, NestResponse> {}

/** The limits of a handler or of a controller. */
export type HandlerLimits = PolicyOption<NestRequest> | RouteOptions<NestRequest, NestResponse> | false;

/** The injection token of the options, for a guard that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

/**
 * Limits a handler, or all handlers of a controller together: by a policy, or by options that override those of the guard. False:
 * it is not limited.
 */
export function RateLimit(limits: HandlerLimits): CustomDecorator<typeof LIMITS> {
  return limitsMetadata(limits);
}

/**
 * The handler, or the controller, is not limited. With names: not by these policies of the guard, as in
 * `@SkipRateLimit('burst')`.
 */
export function SkipRateLimit(...policies: readonly string[]): CustomDecorator<string> {
  return policies.length === 0 ? limitsMetadata(false) : skipsMetadata(policies);
}

type NestLimiter = RequestLimiter<NestRequest, NestResponse>;
type Handler = (...args: never[]) => unknown;

/** A guard that limits requests and messages. */
export class RateLimitGuard implements CanActivate {
  readonly #options: RateLimitGuardOptions;
  readonly #reflector = new Reflector();
  readonly #limiters = new Map<object, Map<object, NestLimiter | undefined>>();
  #warned = false;

  constructor(options: RateLimitGuardOptions) {
    checkLayer(options, nestAdapter.name);
    this.#options = options;
    // Made here, so that wrong options are an error now and not at the first request.
    limiterFor(options, undefined, { layer: '', route: '' });
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const limiter = this.limiterOf(context.getHandler() as Handler, context.getClass());
    if (limiter !== undefined) return respond(limiter, context);
    if (!this.#warned && !isAnythingLimited) this.warnIfIdle();
    return true;
  }

  /** @internal Warns once when neither it nor any handler that it has seen has a limit. */
  warnIfIdle(): void {
    const limiters = Array.from(this.#limiters.values()).flatMap((ofController) => Array.from(ofController.values()));
    if (this.#warned || hasLimit(this.#options) || limiters.some((limiter) => limiter !== undefined)) return;
    this.#warned = true;
    if (isEnabled(this.#options.enabled, nestAdapter.name)) {
      warnOfIdleLayer('the guard of tidegate/nest', 'no handler', "@RateLimit('5/minute')");
    }
  }

  /** @internal The limits of a handler. A decorator of the handler overrides one of its controller. */
  limiterOf(handler: Handler, controller: Type): NestLimiter | undefined {
    let ofController = this.#limiters.get(controller);
    if (ofController === undefined) {
      ofController = new Map();
      this.#limiters.set(controller, ofController);
    }
    // By both: a handler that two controllers inherit is two places.
    const known = ofController.get(handler);
    if (known !== undefined || ofController.has(handler)) return known;
    const limiter = this.#makeLimiter(handler, controller);
    ofController.set(handler, limiter);
    return limiter;
  }

  #makeLimiter(handler: Handler, controller: Type): NestLimiter | undefined {
    const isDecorated = this.#reflector.get<unknown>(LIMITS, handler) !== undefined;
    const limits = this.#reflector.get<HandlerLimits | undefined>(LIMITS, isDecorated ? handler : controller);
    const skips = this.#reflector.getAllAndOverride<readonly string[] | undefined>(SKIPS, [handler, controller]);
    const options = skips === undefined ? this.#options : withoutPolicies(this.#options, skips);
    const ofHandler = handlerPlace(controller, handler);
    const isOfController = limits !== undefined && !isDecorated;
    return limiterFor(options, limits, { layer: '', route: isOfController ? controllerPlace(controller) : ofHandler });
  }
}

Injectable()(RateLimitGuard);
Inject(RATE_LIMIT)(RateLimitGuard, undefined, 0);

function limiterFor(
  options: RateLimitGuardOptions,
  limits: HandlerLimits | undefined,
  places: LayerPlaces<NestRequest>,
): NestLimiter | undefined {
  const own = routeOptions<NestRequest, NestResponse>(limits, nestAdapter.name);
  const parts = routeParts(options, own, places, nestAdapter.name);
  return parts && new RequestLimiter<NestRequest, NestResponse>(nestAdapter, parts);
}

async function respond(limiter: NestLimiter, context: ExecutionContext): Promise<boolean> {
  const { request, response, answer, memory }: NestCall = callOf(context);
  const admission = await limiter.admit(request, memory);
  if (admission === undefined) return true;
  if (admission.decision !== undefined) request.rateLimit = admission.decision;
  if (response !== undefined) admission.announce(setHeader, response);
  if (!admission.admitted) {
    // `onDenied` may answer by itself.
    if (context.getType() === 'http') response?.status?.(admission.status);
    throw exceptionOf(context.getType(), admission, await admission.denied(answer));
  }
  const raw = response?.raw ?? (response as unknown as ServerResponse | undefined);
  if (response !== undefined && raw !== undefined) endWithResponse(admission, raw, response);
  else if (admission.needsEnd) {
    admission.end(answer);
    throw new ConfigError(
      `tidegate/nest: a message of ${context.getType()} has no response that ends, so a concurrency limit, refundWhen and settle ` +
        'cannot be applied to it here: call limiter.hold or limiter.settle in the handler',
    );
  }
  await delay(admission.delayMs);
  if (raw !== undefined && isClosed(raw)) throw clientGone();
  return true;
}

function setHeader(response: NestResponse, name: string, value: string): void {
  if (typeof response.header === 'function') response.header(name, value);
  else (response as unknown as ServerResponse).setHeader(name, value);
}
