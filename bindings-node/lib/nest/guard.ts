// The guard of Nest and its decorators.

import type { ServerResponse } from 'node:http';
import {
  type CanActivate,
  type CustomDecorator,
  type ExecutionContext,
  Inject,
  Injectable,
  SetMetadata,
  type Type,
} from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { delay } from '../delay.js';
import { ConfigError, describe, shortened } from '../errors.js';
import { knownNames } from '../given-options.js';
import {
  checkLayer,
  hasLimit,
  isEnabled,
  type LayerPlaces,
  routeOptions,
  routeParts,
  warnOfIdleLayer,
} from '../http/layers.js';
import { isAwaited } from '../http/node-response.js';
import type { LayerOptions, PolicyChoice, PolicyOption, RouteOptions } from '../http/rate-limit-options.js';
import { RequestLimiter } from '../http/request-limiter.js';
import { Policy } from '../policy.js';
import {
  callOf,
  clientGone,
  exceptionOf,
  type NestCall,
  type NestRequest,
  type NestResponse,
  nestAdapter,
} from './call.js';

/** The options of a guard. Without a policy only handlers that name one are limited. */
export interface RateLimitGuardOptions extends LayerOptions<NestRequest, NestResponse> {}

/** The limits of a handler or of a controller. */
export type HandlerLimits = PolicyOption<NestRequest> | RouteOptions<NestRequest, NestResponse> | false;

/** The metadata keys of limits, and of the names of policies that do not apply. */
export const LIMITS = 'tidegate:rate-limit';
export const SKIPS = 'tidegate:skip-policies';

/** Whether any decorator of this process limits something. */
let isAnythingLimited = false;

/** The injection token of the options, for a guard that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

/**
 * Limits a handler, or all handlers of a controller together: by a policy, or by options that override those of the guard. False:
 * it is not limited.
 */
export function RateLimit(limits: HandlerLimits): CustomDecorator<typeof LIMITS> {
  if (limits === undefined)
    throw new ConfigError('tidegate/nest: @RateLimit() without a policy limits nothing: name one');
  // Checked where they are written.
  routeOptions(limits, 'tidegate/nest: @RateLimit');
  if (limits !== false) isAnythingLimited = true;
  return SetMetadata(LIMITS, limits);
}

/**
 * The handler, or the controller, is not limited. With names: not by these policies of the guard, as in
 * `@SkipRateLimit('burst')`.
 */
export function SkipRateLimit(...policies: readonly string[]): CustomDecorator<string> {
  for (const policy of policies as readonly unknown[]) {
    if (typeof policy !== 'string') {
      throw new ConfigError(`tidegate/nest: @SkipRateLimit takes names of policies, not ${describe(policy)}`);
    }
  }
  return policies.length === 0 ? RateLimit(false) : SetMetadata(SKIPS, policies);
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
    const type = context.getType();
    const body = await admission.denied(answer, (status) => type === 'http' && response?.status?.(status));
    throw exceptionOf(type, admission, body);
  }
  const raw = response?.raw ?? (response as unknown as ServerResponse | undefined);
  if (response !== undefined && raw !== undefined) {
    if (await isAwaited(admission, raw, response)) return true;
    throw clientGone();
  }
  if (admission.needsEnd) {
    admission.end(answer);
    throw new ConfigError(
      `tidegate/nest: a message of ${context.getType()} has no response that ends, so a concurrency limit, refundWhen and settle ` +
        'cannot be applied to it here: call limiter.hold or limiter.settle in the handler',
    );
  }
  await delay(admission.delayMs);
  return true;
}

function setHeader(response: NestResponse, name: string, value: string): void {
  if (typeof response.header === 'function') response.header(name, value);
  else (response as unknown as ServerResponse).setHeader(name, value);
}

function choicesOf(option: PolicyOption<NestRequest> | undefined): readonly unknown[] {
  if (option === undefined) return [];
  return Array.isArray(option) ? option : [option];
}

function nameOf(choice: unknown): unknown {
  const policy = typeof choice === 'object' && choice !== null && 'policy' in choice ? choice.policy : choice;
  return policy instanceof Policy ? policy.name : policy;
}

/** The options of a guard without some of its policies. */
function withoutPolicies(options: RateLimitGuardOptions, skipped: readonly string[]): RateLimitGuardOptions {
  const { policy, default: each, application } = options;
  const names = [policy, each, application].flatMap(choicesOf).map(nameOf);
  for (const name of skipped) {
    if (names.includes(name)) continue;
    const known = names.filter((name) => typeof name === 'string');
    throw new ConfigError(
      `tidegate/nest: @SkipRateLimit names ${JSON.stringify(shortened(name))}, which is no policy of the guard: ${knownNames(name, known)}`,
    );
  }
  const rest = <T>(option: T): T | undefined => {
    if (option === undefined || typeof option === 'function') return option;
    const kept = choicesOf(option as PolicyChoice<NestRequest>).filter(
      (choice) => !skipped.includes(nameOf(choice) as string),
    );
    return kept.length === 0 ? undefined : (kept as T);
  };
  return { ...options, policy: rest(policy), default: rest(each), application: rest(application) };
}

// The names of handlers and controllers, under which a notation at them counts.

type Target = Type | ((...args: never[]) => unknown);

/** The keys under which Nest's decorators remember what they say. */
const [PATH, HOST, VERSION, PATTERN, MESSAGE] = ['path', 'host', '__version__', 'microservices:pattern', 'message'];

function metadata(name: string, target: Target): unknown {
  return Reflect.getMetadata(name, target);
}

function text(value: unknown): string {
  if (value === undefined || value === null || value === '' || value === '/') return '';
  if (Array.isArray(value)) return value.map(text).join(',');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function isSingle(value: unknown): boolean {
  return !Array.isArray(value) || value.length < 2;
}

/** A controller: its class and what its decorator says. */
function controllerPlace(controller: Type): string {
  const parts = [metadata(VERSION, controller), metadata(HOST, controller), metadata(PATH, controller)];
  return [...parts.map(text), controller.name].filter((part) => part !== '').join(' ');
}

/** A handler: the pattern of its route, or its message, and its name. */
function handlerPlace(controller: Type, handler: Target): string | ((request: NestRequest) => string) {
  const message = metadata(PATTERN, handler) ?? metadata(MESSAGE, handler);
  const [outer, inner] = [metadata(PATH, controller), metadata(PATH, handler)];
  if (message !== undefined) return `${controller.name}.${handler.name} ${text(message)}`;
  if (inner === undefined) return `${controller.name}.${handler.name}`;
  const version = metadata(VERSION, handler) ?? metadata(VERSION, controller);
  const declared = [
    text(version),
    text(metadata(HOST, controller)),
    `/${text(outer)}/${text(inner)}`.replaceAll(/\/+/g, '/'),
  ];
  const place = `${declared.filter((part) => part !== '').join(' ')}.${handler.name}`;
  // Of several routes of one handler no single one is its place.
  if (![outer, inner, version].every(isSingle)) return place;
  return (request) => {
    const { routeOptions, route } = request as { routeOptions?: { url?: string }; route?: { path?: unknown } };
    const pattern = routeOptions?.url ?? route?.path;
    return typeof pattern === 'string' ? `${pattern}.${handler.name}` : place;
  };
}
