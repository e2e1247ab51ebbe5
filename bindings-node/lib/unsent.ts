// Recognizes errors after which certainly nothing was sent.

import { CostError } from './errors.js';
import { RateLimited } from './rate-limited.js';

/** Codes of connections that were never made: those of the system, of undici and of Bun. */
const UNCONNECTED = new Set<unknown>([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
  'ConnectionRefused',
  'FailedToOpenSocket',
]);

interface ClientError {
  readonly code?: unknown;
  readonly syscall?: unknown;
  readonly message?: unknown;
  readonly cause?: unknown;
  readonly errors?: unknown;
}

/** True if the error shows that certainly nothing was sent. */
export function isUnsent(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false;
  // These errors come from a client that is paced itself.
  if (error instanceof RateLimited || error instanceof CostError) return true;
  const { code, syscall, message, cause, errors } = error as ClientError;
  // Deno has no codes.
  if (UNCONNECTED.has(code) || syscall === 'connect' || /client error \(Connect\)/.test(String(message))) return true;
  // There is one error for each address of a name.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(isUnsent);
  return isUnsent(cause);
}
