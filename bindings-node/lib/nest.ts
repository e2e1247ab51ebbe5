// NestJS 11, on Express and on Fastify.
//
//     app.useGlobalGuards(new RateLimitGuard({ limiter, policy: 'api' }));
//
//     @Post('login')
//     @RateLimit('5/minute')
//     login() {}

import type { ServerResponse } from 'node:http';
import {
  type CanActivate,
  type CustomDecorator,
  type DynamicModule,
  type ExecutionContext,
  HttpException,
  Inject,
  Injectable,
  Module,
  SetMetadata,
  StreamableFile,
} from '@nestjs/common';
import { APP_GUARD, Reflector } from '@nestjs/core';
import type { Decision } from './decision.js';
import { ConfigError } from './errors.js';
import type { Admission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { endWithResponse, waitFor } from './http/node-response.js';
import { expressTrust, fastifyTrust } from './http/proxy-trust.js';
import type { PolicyChoice, RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { type NodeRequest, nodeRequestAdapter } from './http/request-adapter.js';
import { RequestLimiter } from './http/request-limiter.js';

/** A request of Express or of Fastify. */
export interface NestRequest extends NodeRequest {
  /** The Decision of the guard about this request. */
  rateLimit?: Decision;
}

/** A response of Express or a reply of Fastify. */
export interface NestResponse {
  /** Node's response, where it is not this one. */
  readonly raw?: ServerResponse;
  readonly headersSent?: boolean;
  readonly sent?: boolean;
  header(name: string, value: string): unknown;
}

type Options = RateLimitOptions<NestRequest, NestResponse>;

/** The options of a guard. Without a policy only handlers that name one are limited. */
export interface RateLimitGuardOptions extends Omit<Options, 'policy'> {
  policy?: Options['policy'];
}

/** The injection token of the options, for a guard that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

/** The metadata key of the limits of a handler or a controller. */
const LIMITS = 'tidegate:rate-limit';

/**
 * Limits a handler, or all handlers of a controller: by a policy, or by options that override those of the guard. False: it is
 * not limited.
 */
export function RateLimit(
  limits: PolicyChoice<NestRequest> | Partial<Options> | false,
): CustomDecorator<typeof LIMITS> {
  return SetMetadata(LIMITS, limits);
}

/** The handler, or the controller, is not limited. */
export function SkipRateLimit(): CustomDecorator<typeof LIMITS> {
  return RateLimit(false);
}

const adapter = nodeRequestAdapter<NestRequest>('tidegate/nest', {
  trusts: {
    setting: `${expressTrust.setting}, or ${fastifyTrust.setting},`,
    of: (request) => ('server' in request ? fastifyTrust.of(request as { server: object }) : expressTrust.of(request)),
  },
});

const keys: Keys<NestRequest> = keysOf(adapter);
export const clientIp: Keys<NestRequest>['clientIp'] = keys.clientIp;
export const header: Keys<NestRequest>['header'] = keys.header;
export const user: Keys<NestRequest>['user'] = keys.user;
export const claim: Keys<NestRequest>['claim'] = keys.claim;

type NestLimiter = RequestLimiter<NestRequest, NestResponse>;
type Handler = ReturnType<ExecutionContext['getHandler']>;

/** A guard that limits requests. */
export class RateLimitGuard implements CanActivate {
  readonly #options: RateLimitGuardOptions;
  readonly #reflector = new Reflector();
  readonly #default: NestLimiter | undefined;
  readonly #limiters = new Map<object, NestLimiter | undefined>();

  constructor(options: RateLimitGuardOptions) {
    this.#options = options;
    // Made here, so that wrong options are an error now and not at the first request.
    this.#default = limiterFor(options);
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') {
      throw new ConfigError(`tidegate/nest limits HTTP requests, not ${context.getType()}: put @SkipRateLimit() there`);
    }
    const limiter = this.#limiterOf(context.getHandler(), context.getClass());
    const http = context.switchToHttp();
    return limiter === undefined || respond(limiter, http.getRequest<NestRequest>(), http.getResponse<NestResponse>());
  }

  /** The limiter of a handler. A decorator of the handler overrides one of its controller. */
  #limiterOf(handler: Handler, controller: Handler): NestLimiter | undefined {
    const isDecorated = this.#reflector.get<unknown>(LIMITS, handler) !== undefined;
    const target = isDecorated ? handler : controller;
    if (this.#limiters.has(target)) return this.#limiters.get(target);
    const limits = this.#reflector.get<unknown>(LIMITS, target);
    const route = isDecorated ? `${controller.name}.${handler.name}` : controller.name;
    const limiter =
      limits === undefined ? this.#default : limiterFor({ ...this.#options, ...optionsOf(limits) }, route);
    this.#limiters.set(target, limits === false ? undefined : limiter);
    return this.#limiters.get(target);
  }
}

Injectable()(RateLimitGuard);
Inject(RATE_LIMIT)(RateLimitGuard, undefined, 0);

function limiterFor(options: RateLimitGuardOptions, route?: string): NestLimiter | undefined {
  if (options.policy === undefined) return undefined;
  return new RequestLimiter<NestRequest, NestResponse>(adapter, options as Options, route);
}

/** The options that the argument of a decorator stands for. */
function optionsOf(limits: unknown): Partial<Options> {
  if (limits === undefined || limits === false) return {};
  const isOptions = typeof limits === 'object' && limits !== null && Object.getPrototypeOf(limits) === Object.prototype;
  return isOptions ? (limits as Partial<Options>) : { policy: limits as PolicyChoice<NestRequest> };
}

async function respond(limiter: NestLimiter, request: NestRequest, response: NestResponse): Promise<boolean> {
  const admission = await limiter.admit(request);
  if (admission === undefined) return true;
  if (admission.decision !== undefined) request.rateLimit = admission.decision;
  admission.announce(setHeader, response);
  if (!admission.admitted) throw new RateLimitException(admission, await admission.denied(response));
  endWithResponse(admission, response.raw ?? (response as unknown as ServerResponse), response);
  await waitFor(admission.delayMs);
  return true;
}

function setHeader(response: NestResponse, name: string, value: string): void {
  response.header(name, value);
}

/** Thrown when a request is refused. A filter may answer in its own way; `getResponse` returns the problem. */
export class RateLimitException extends HttpException {
  /** The denial; undefined when the store could not be asked. */
  readonly decision: Decision | undefined;

  constructor(admission: Admission<NestRequest, NestResponse>, body: unknown) {
    super((body ?? new Problem(admission.problem())) as object, admission.status);
    this.decision = admission.decision;
  }
}

/** A problem as Nest sends it under its own media type: an object of any other class goes out as `application/json`. */
class Problem extends StreamableFile {
  readonly #body: string;

  constructor(body: string) {
    const bytes = Buffer.from(body);
    super(bytes, { type: MEDIA_TYPE, length: bytes.length });
    this.#body = body;
  }

  toJSON(): unknown {
    return JSON.parse(this.#body);
  }
}

/** Limits all handlers of an application: `imports: [RateLimitModule.forRoot({ limiter, policy })]`. */
// biome-ignore lint/complexity/noStaticOnlyClass: a module of Nest is a class
export class RateLimitModule {
  static forRoot(options: RateLimitGuardOptions): DynamicModule {
    return {
      module: RateLimitModule,
      global: true,
      providers: [
        { provide: RATE_LIMIT, useValue: options },
        { provide: APP_GUARD, useFactory: () => new RateLimitGuard(options) },
      ],
      exports: [RATE_LIMIT],
    };
  }
}

Module({})(RateLimitModule);
