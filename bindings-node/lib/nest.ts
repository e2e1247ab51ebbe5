// NestJS 11, on Express and on Fastify, with GraphQL, microservices and websockets.
//
//     app.useGlobalGuards(new RateLimitGuard({ limiter, policy: 'api' }));
//
//     @Post('login')
//     @RateLimit('5/minute')
//     login() {}

import { type Keys, keysOf } from './http/keys.js';
import { type NestRequest, nestAdapter } from './nest/call.js';

export { type NestRequest, type NestResponse, RateLimitException } from './nest/call.js';
export {
  type HandlerLimits,
  RATE_LIMIT,
  RateLimit,
  RateLimitGuard,
  type RateLimitGuardOptions,
  type RateLimitGuardOptions as RateLimitOptions,
  SkipRateLimit,
} from './nest/guard.js';
export { RateLimitModule, type RateLimitModuleAsyncOptions, type RateLimitOptionsFactory } from './nest/module.js';

export const { clientIp, header, user, claim, fixed }: Keys<NestRequest> = keysOf(nestAdapter);
