// A refusal: its status, its wait, and a problem (RFC 9457). The core writes the problem. The numbers in it are worked
// out here in the same way as in the core, which `tests/http` proves. Error handling gets a refusal as an error.

import { DecisionField, Special } from '../../binding/index.js';
import { announcementOf, bindingOf, type Decision, numbersOf, partsOf } from '../decision.js';
import { describe, StoreError } from '../errors.js';
import { type binding, native } from '../native.js';
import type { PolicyRef } from '../policy.js';
import { RateLimited } from '../rate-limited.js';

/** The platform's `Response`, if the types of your program have one. */
export type WebResponse = typeof globalThis extends { Response: { prototype: infer R } } ? R : unknown;

/** The media type of a problem. */
export const MEDIA_TYPE: string = native.problemMediaType();

const MICROS_PER_SECOND = 1_000_000;
/** The wait for a missing store, in seconds. Most stores are back within one, and there is no better guess. */
const STORE_WAIT = 1;

/** Returns the status: 429 if a quota is exceeded, 503 if the store is missing. */
export function status(decision: Decision | undefined): 429 | 503 {
  return decision === undefined || decision.unavailable ? 503 : 429;
}

/** Returns the seconds that a refused client should wait, rounded up, or `null` if waiting does not help. */
export function retryAfter(decision: Decision | undefined): number | null {
  if (decision === undefined) return STORE_WAIT;
  const wait = numbersOf(decision)[DecisionField.RetryAfter];
  if (decision.unavailable) return Math.max(STORE_WAIT, Math.ceil(wait / MICROS_PER_SECOND));
  return wait === Special.Never ? null : Math.max(1, Math.ceil(wait / MICROS_PER_SECOND));
}

/** Returns a `Response` as a refusal. One that names no status has 200, and gets that of the refusal. */
export function asRefusal(response: WebResponse, status: number): WebResponse {
  return response.status === 200 ? new Response(response.body, { status, headers: response.headers }) : response;
}

/** Returns the body as JSON. It names policies, never keys. Without a Decision, `unasked` are the policies. */
export function problem(decision: Decision | undefined, unasked: readonly PolicyRef[] = []): string {
  const names =
    decision === undefined ? unasked.flatMap(({ announcement }) => limitNames(announcement)) : violated(decision);
  return native.problem(status(decision) === 503, retryAfter(decision), names, decision?.abnormal ?? false);
}

/**
 * Returns the names of the limits that refused, as the fields name them, each once. A block belongs to the binding
 * limit. If the store is missing, all limits are named.
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

function limitNames(announcement: binding.Announcement | undefined): string[] {
  return announcement?.limits.map(({ name }) => name) ?? [];
}

/** The error of a refusal, as error handlers get it. */
export interface RefusalError extends Error {
  /** `rate_limited`, or without the store the code of its error. */
  readonly code: string;
  /** 429, or 503 if the store is missing. */
  readonly status: 429 | 503;
  readonly statusCode: 429 | 503;
  /** True if a client may see the message. */
  readonly expose: boolean;
  /** `Retry-After`, and the fields that announce the limits. */
  readonly headers: Readonly<Record<string, string>>;
  /** The denial. Undefined if the store could not be asked. */
  readonly decision?: Decision;
  /** Returns the body that is sent if no handler answers, as `application/problem+json`. */
  problem(): string;
  /** Returns the answer for Hono. */
  getResponse(): WebResponse;
}

/** A request that was refused. */
export interface Refused {
  /** The denial. Undefined if the store could not be asked. */
  readonly decision: Decision | undefined;
  /** The reason why the store could not be asked. */
  readonly error: StoreError | undefined;
  readonly status: 429 | 503;
  /** Returns the body, as `application/problem+json`. */
  problem(): string;
  /** Returns the fields of the answer by name. */
  fields(): Readonly<Record<string, string>>;
}

/** Returns a refusal as an error for the framework's error handling: RateLimited, or the error of the store. */
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

/** Turns a thrown value into an error. For frameworks undefined is no error, and for Express 'route' is an order: the handler would run. */
export function asError(reason: unknown, where: string): Error {
  if (typeof reason === 'object' && reason !== null) return reason as Error;
  return new Error(`${where}: a function given as an option threw ${describe(reason)}, which is not an Error`, {
    cause: reason,
  });
}
