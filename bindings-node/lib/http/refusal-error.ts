// A refusal as an error, for the error handling of a framework.

import type { Decision } from '../decision.js';
import { StoreError } from '../errors.js';
import { RateLimited } from '../rate-limited.js';
import { MEDIA_TYPE } from './refusal.js';
import type { WebResponse } from './request-adapter.js';

/** What error handlers find on the error of a refusal. */
export interface RefusalError extends Error {
  /** `rate_limited`; without the store the code of its error. */
  readonly code: string;
  /** 429, or 503 when the store is missing. */
  readonly status: 429 | 503;
  readonly statusCode: 429 | 503;
  /** Whether a client may see the message. */
  readonly expose: boolean;
  /** `Retry-After`, and the fields that announce the limits. */
  readonly headers: Readonly<Record<string, string>>;
  /** The denial; undefined when the store could not be asked. */
  readonly decision?: Decision;
  /** The body that is sent when no handler answers, as `application/problem+json`. */
  problem(): string;
  /** The answer of Hono. */
  getResponse(): WebResponse;
}

/** What an error of a refusal is made from. */
export interface Refused {
  readonly decision: Decision | undefined;
  readonly status: 429 | 503;
  readonly error: StoreError | undefined;
  problem(): string;
}

/** The error of a refusal: RateLimited, or the store's own where it could not be asked. */
export function refusalError(refused: Refused, headers: Readonly<Record<string, string>>): RefusalError {
  const { decision, status, error } = refused;
  const made =
    decision === undefined ? (error ?? new StoreError('the store could not be asked')) : new RateLimited(decision);
  const problem = (): string => refused.problem();
  const properties = {
    status,
    statusCode: status,
    expose: status === 429,
    headers,
    problem,
    getResponse: () => new Response(problem(), { status, headers: { ...headers, 'Content-Type': MEDIA_TYPE } }),
  };
  // Not enumerable, so that a log shows the error and not its answer.
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(made, name, { value, configurable: true, writable: true });
  }
  return made as unknown as RefusalError;
}
