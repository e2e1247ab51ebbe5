// NestJS 11, on Express and on Fastify, with GraphQL, microservices and websockets.
//
//     app.useGlobalGuards(new RateLimitGuard({ limiter, policy: 'api' }));
//
//     @Post('login')
//     @RateLimit('5/minute')
//     login() {}

import { type Keys, keysOf } from './http/keys.js';
import { type NestRequest, nestAdapter } from './nest-call.js';

export type { NestRequest, NestResponse } from './nest-call.js';
export {
  type HandlerLimits,
  RATE_LIMIT,
  RateLimit,
  RateLimitGuard,
  type RateLimitGuardOptions,
  type RateLimitGuardOptions as RateLimitOptions,
  SkipRateLimit,
} from './nest-guard.js';
export { RateLimitModule, type RateLimitModuleAsyncOptions, type RateLimitOptionsFactory } from './nest-module.js';
export { RateLimitException } from './nest-refusal.js';

const keys: Keys<NestRequest> = keysOf(nestAdapter);
export const clientIp: Keys<NestRequest>['clientIp'] = keys.clientIp;
export const header: Keys<NestRequest>['header'] = keys.header;
export const user: Keys<NestRequest>['user'] = keys.user;
export const claim: Keys<NestRequest>['claim'] = keys.claim;
export const fixed: Keys<NestRequest>['fixed'] = keys.fixed;
