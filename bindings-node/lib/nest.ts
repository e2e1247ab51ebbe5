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
import { type Admission, RequestLimiter } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { attend, turn } from './http/node-response.js';
import { expressTrust, fastifyTrust } from './http/proxy-trust.js';
import type { PolicyChoice, RateLimitOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { type NodeRequest, nodeRequestAdapter } from './http/request-adapter.js';

/** A request of Express or of Fastify. */
export interface NestRequest extends NodeRequest {
  /** What the guard decided about this request. */
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

/** What a guard is told. Without a policy only handlers that name one are limited. */
export interface RateLimitGuardOptions extends Omit<Options, 'policy'> {
  policy?: Options['policy'];
}

/** Where the options of a guard are found that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

const HANDLER = 'tidegate:rate-limit';

/**
 * Limits a handler, or all of a controller: by a policy, or by options laid over those of the guard. False: it is not
 * limited.
 */
export function RateLimit(
  limits: PolicyChoice<NestRequest> | Partial<Options> | false,
): CustomDecorator<typeof HANDLER> {
  return SetMetadata(HANDLER, limits);
}

/** The handler, or the controller, is not limited. */
export function SkipRateLimit(): CustomDecorator<typeof HANDLER> {
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
  readonly #common: NestLimiter | undefined;
  readonly #requestLimiters = new Map<object, NestLimiter | undefined>();

  constructor(options: RateLimitGuardOptions) {
    this.#options = options;
    // What is wrong is found now, not when the first request comes.
    this.#common = this.#made(options);
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (context.getType() !== 'http') {
      throw new ConfigError(`tidegate/nest limits HTTP requests, not ${context.getType()}: put @SkipRateLimit() there`);
    }
    const requestLimiter = this.#requestLimiterOf(context.getHandler(), context.getClass());
    const http = context.switchToHttp();
    return (
      requestLimiter === undefined ||
      pass(requestLimiter, http.getRequest<NestRequest>(), http.getResponse<NestResponse>())
    );
  }

  /** What a handler says goes before what its controller says. */
  #requestLimiterOf(handler: Handler, controller: Handler): NestLimiter | undefined {
    const said = this.#reflector.get<unknown>(HANDLER, handler) !== undefined;
    const place = said ? handler : controller;
    if (this.#requestLimiters.has(place)) return this.#requestLimiters.get(place);
    const limits = this.#reflector.get<unknown>(HANDLER, place);
    const name = said ? `${controller.name}.${handler.name}` : controller.name;
    const requestLimiter =
      limits === undefined ? this.#common : this.#made({ ...this.#options, ...laidOver(limits) }, name);
    this.#requestLimiters.set(place, limits === false ? undefined : requestLimiter);
    return this.#requestLimiters.get(place);
  }

  #made(options: RateLimitGuardOptions, place?: string): NestLimiter | undefined {
    if (options.policy === undefined) return undefined;
    return new RequestLimiter<NestRequest, NestResponse>(adapter, options as Options, place);
  }
}

Injectable()(RateLimitGuard);
Inject(RATE_LIMIT)(RateLimitGuard, undefined, 0);

function laidOver(handler: unknown): Partial<Options> {
  if (handler === undefined || handler === false) return {};
  const isOptions =
    typeof handler === 'object' && handler !== null && Object.getPrototypeOf(handler) === Object.prototype;
  return isOptions ? (handler as Partial<Options>) : { policy: handler as PolicyChoice<NestRequest> };
}

async function pass(requestLimiter: NestLimiter, request: NestRequest, response: NestResponse): Promise<boolean> {
  const admission = await requestLimiter.ask(request);
  if (admission === undefined) return true;
  if (admission.decision !== undefined) request.rateLimit = admission.decision;
  admission.announce(put, response);
  if (!admission.admitted) throw new RateLimitException(admission, await admission.denied(response));
  attend(admission, response.raw ?? (response as unknown as ServerResponse), response);
  await turn(admission.delayMs);
  return true;
}

function put(response: NestResponse, name: string, value: string): void {
  response.header(name, value);
}

/** Thrown when a request is refused. A filter may answer in its own way; the problem is what `getResponse` says. */
export class RateLimitException extends HttpException {
  /** The denial; nothing when the store could not be asked. */
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
// biome-ignore lint/complexity/noStaticOnlyClass: Nest knows modules as classes
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
