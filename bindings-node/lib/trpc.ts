// Procedures of tRPC 11.
//
//     procedure.use(limited({ limiter, policy: 'api', key: ({ ctx }) => ctx.user }))

import { TRPCError } from '@trpc/server';
import type { CancelSignal } from './cancel-signal.js';
import { KeyInvalid, StoreError } from './errors.js';
import { callAdapter, runLimited } from './http/limited-call.js';
import type { RateLimitOptions } from './http/rate-limit-options.js';
import { refusalError, retryAfter } from './http/refusal.js';
import { middlewareLimits } from './http/settings.js';
import { RateLimited } from './rate-limited.js';

/** A call of a procedure, as tRPC gives it to a middleware. */
export interface TrpcCall<Context, Input> {
  readonly ctx: Context;
  /** The input, as the validators before this middleware left it. */
  readonly input: Input;
  /** The path of the procedure, such as `post.byId`. */
  readonly path: string;
  readonly type: string;
  readonly signal?: CancelSignal | undefined;
}

/** The options of `limited`. */
export type LimitedOptions<Context, Input> = RateLimitOptions<TrpcCall<Context, Input>, unknown>;

const adapter = callAdapter<TrpcCall<unknown, unknown>, unknown>(
  {
    name: 'tidegate/trpc',
    path: ({ path }) => path,
    header: () => undefined,
    withoutPeer: () =>
      new KeyInvalid('tidegate/trpc: a call has no address: give a key, such as key: ({ ctx }) => ctx.user.id'),
    user: ({ ctx }) => (ctx as { user?: unknown } | undefined)?.user,
    claims: ({ ctx }) => (ctx as { user?: unknown } | undefined)?.user,
  },
  (refused, message) =>
    new TRPCError({
      code: refused.status === 429 ? 'TOO_MANY_REQUESTS' : 'SERVICE_UNAVAILABLE',
      message,
      cause: refusalError(refused),
    }),
);

/** A middleware for the procedures of any router. */
export type Limited<Context, Input> = <Result>(
  call: TrpcCall<Context, Input> & { next(): Promise<Result> },
) => Promise<Result>;

/** Returns a middleware that limits the calls of a procedure. Each call of a batch counts. */
export function limited<Context, Input>(options: LimitedOptions<Context, Input>): Limited<Context, Input> {
  const settings = middlewareLimits(
    adapter,
    options as RateLimitOptions<TrpcCall<unknown, unknown>, never>,
    ({ path }) => path,
  );
  return <Result>(call: TrpcCall<Context, Input> & { next(): Promise<Result> }) =>
    runLimited(settings, call, call.next, call.signal) as Promise<Result>;
}

/**
 * Adds `retryAfter`, the seconds to wait, to the data of a refusal: `initTRPC.create({ errorFormatter })`. It is `null` if waiting
 * does not help.
 */
export function errorFormatter<Shape extends { data: object }>({
  shape,
  error,
}: {
  readonly shape: Shape;
  readonly error: { readonly cause?: unknown };
}): Shape & { data: { retryAfter?: number | null } } {
  const { cause } = error;
  if (!(cause instanceof RateLimited || cause instanceof StoreError)) return shape;
  const wait = retryAfter(cause instanceof RateLimited ? cause.decision : undefined);
  return { ...shape, data: { ...shape.data, retryAfter: wait } };
}
