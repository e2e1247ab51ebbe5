// A refusal: its status, how long to wait, and a problem (RFC 9457). The core writes the problem. The numbers in it are worked
// out here in the same way as in the core, which `tests/http` proves. For the error handling of a framework it is an error.

import { DecisionField, Special } from '../../binding/index.js';
import { announcementOf, bindingOf, type Decision, numbersOf, partsOf } from '../decision.js';
import { describe, StoreError } from '../errors.js';
import { native } from '../native.js';
import type { PolicyRef } from '../policy.js';
import { RateLimited } from '../rate-limited.js';

/** The platform's `Response`, where the program that is compiled knows one. */
export type WebResponse = typeof globalThis extends { Response: { prototype: infer R } } ? R : unknown;

/** The media type of a problem. */
export const MEDIA_TYPE: string = native.problemMediaType();

const MICROS_PER_SECOND = 1_000_000;
/** The wait for a missing store, in seconds. Most stores are back within one, and there is no better guess. */
const STORE_WAIT = 1;

/** The status: 429 when a quota is exceeded, 503 when the store is missing. */
export function status(decision: Decision | undefined): 429 | 503 {
  return decision === undefined || decision.unavailable ? 503 : 429;
}

/** How many whole seconds a refused client should wait, rounded up; `null` when waiting does not help. */
export function retryAfter(decision: Decision | undefined): number | null {
  if (decision === undefined) return STORE_WAIT;
  const wait = numbersOf(decision)[DecisionField.RetryAfter];
  if (decision.unavailable) return Math.max(STORE_WAIT, Math.ceil(wait / MICROS_PER_SECOND));
  return wait === Special.Never ? null : Math.max(1, Math.ceil(wait / MICROS_PER_SECOND));
}

/** A `Response` as a refusal: one that names no status is a 200. */
export function asRefusal(response: WebResponse, status: number): WebResponse {
  return response.status === 200 ? new Response(response.body, { status, headers: response.headers }) : response;
}

/** The body, as JSON. It names policies, never keys. Without a Decision these policies could not be asked. */
export function problem(decision: Decision | undefined, unasked: readonly PolicyRef[] = []): string {
  const names =
    decision === undefined ? unasked.flatMap(({ announcement }) => limitNames(announcement)) : violated(decision);
  return native.problem(status(decision) === 503, retryAfter(decision), names, decision?.abnormal ?? false);
}

/**
 * The names of the limits that refused, as the fields name them, each once. A block is of the limit that binds; where the
 * store is missing, no limit could be asked.
 */
function violated(decision: Decision): string[] {
  const names = partsOf(decision)
    .filter(({ allowed }) => !allowed)
    .flatMap((entry) => {
      const all = limitNames(announcementOf(entry));
      if (entry.unavailable) return all;
      const { limits } = entry;
      const refused = all.filter((_, index) => limits[index]?.exceeded);
      return refused.length === 0 ? all.slice(bindingOf(entry)).slice(0, 1) : refused;
    });
  return [...new Set(names)];
}

function limitNames(announcement: native.Announcement | undefined): string[] {
  return announcement?.limits.map(({ name }) => name) ?? [];
}

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

/** A request that was refused. */
export interface Refused {
  /** The denial; undefined when the store could not be asked. */
  readonly decision: Decision | undefined;
  /** Why the store could not be asked. */
  readonly error: StoreError | undefined;
  readonly status: 429 | 503;
  /** The body, as `application/problem+json`. */
  problem(): string;
  /** The fields of the answer by name. */
  fields(): Readonly<Record<string, string>>;
}

/** A refusal as an error, for the framework's error handling: RateLimited, or the store's own where it could not be asked. */
export function refusalError(refused: Refused): RefusalError {
  const { decision, status, error } = refused;
  const made =
    decision === undefined ? (error ?? new StoreError('the store could not be asked')) : new RateLimited(decision);
  const headers = refused.fields();
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

/** A reason as an error. For frameworks nothing is no error, and for Express some texts are orders: the refused handler would run. */
export function asError(reason: unknown, where: string): Error {
  if (typeof reason === 'object' && reason !== null) return reason as Error;
  return new Error(`${where}: a function given as an option threw ${describe(reason)}, which is no error`, {
    cause: reason,
  });
}
