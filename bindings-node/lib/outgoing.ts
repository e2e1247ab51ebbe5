// Reads the limits of other services from their responses.
//
//     const response = await fetch('https://api.example.com/');
//     for (const { limit, remaining, resetAfterMs } of observations(response.headers, { status: response.status })) …

import type { Cost } from './cost.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType } from './given-options.js';
import { type Observation, type ResponseHeaders, readResponse } from './response-reading.js';

export type { Observation, ResponseHeaders } from './response-reading.js';

/**
 * An object that reads the body of a response while the caller gets it. The option `settle` of a transport may return
 * one. It should be quick and keep little, because it runs while the caller reads.
 */
export interface SettleReader {
  /** Reads the next chunk of the body, with its Content-Encoding undone. */
  feed(chunk: Uint8Array): void;
  /**
   * Returns the actual cost of the call, or `undefined` to keep the charge. It is called once, when the body has ended or was given up.
   */
  end(): Cost | undefined;
}

/** Facts about a response besides its fields. */
export interface ObservationOptions {
  /** The time at which the response came, in milliseconds since 1970. Default: now. A `Date` of the response corrects it. */
  readonly dateMs?: number | undefined;
  /** The status. Without it no response is taken for a refusal. */
  readonly status?: number | undefined;
  /** The body, as it came. It is read only for a 403, 429 and 503. */
  readonly body?: string | Uint8Array | undefined;
  /** The longest wait to believe. Default: an hour. */
  readonly maxLearnedWaitMs?: number | undefined;
}

const OPTIONS = { dateMs: ['number'], status: ['number'], body: ['string', 'object'], maxLearnedWaitMs: ['number'] };

/**
 * Reads the limits of a service from a response, and returns an Observation for each limit. One with `retryAfterMs`
 * comes first. Absurd values are ignored.
 */
export function observations(headers: ResponseHeaders, given: ObservationOptions = {}): Observation[] {
  const options = checkOptions(given, Object.keys(OPTIONS), 'observations', 'dateMs: Date.now()');
  for (const [name, types] of Object.entries(OPTIONS)) {
    const value = options[name as keyof ObservationOptions];
    if (value !== undefined) checkType(name, value, types);
  }
  if (typeof options.body === 'object' && !(options.body instanceof Uint8Array)) {
    throw new ConfigError(`body must be a string or a Uint8Array, not ${describe(options.body)}`);
  }
  const { dateMs = Date.now(), status, body, maxLearnedWaitMs } = options;
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  return readResponse(headers, dateMs, status, bytes, maxLearnedWaitMs).observations as Observation[];
}
