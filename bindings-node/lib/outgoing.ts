// What the responses of other services say of their limits.
//
//     const response = await fetch('https://api.example.com/');
//     for (const { limit, remaining, resetAfterMs } of observations(response.headers, { status: response.status })) …

import type { Cost } from './cost.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType, isRecord } from './given-options.js';
import { native, unwrap } from './native.js';

/** What a response says of one limit, or how long it tells to wait. What it does not say is missing. */
export interface Observation {
  /** The name that the response gives the limit: of a policy, a bucket or a resource. */
  readonly name?: string;
  /** The count of the limit. */
  readonly limit?: number;
  /** The length of time for which the count holds. */
  readonly windowMs?: number;
  /** What the limit counts, such as `tokens`. */
  readonly unit?: string;
  /** The units that are left; never more than `limit`. */
  readonly remaining?: number;
  /** The time until the limit is reset, or until more units are left where the response says that. 0 when it has passed. */
  readonly resetAfterMs?: number;
  /** The time until the request may be made again. */
  readonly retryAfterMs?: number;
  /** Whom `retryAfterMs` concerns: the key of the request, or every request to the service. */
  readonly scope: 'key' | 'all';
}

/**
 * What `settle` of a transport may return: an object that reads the body of a response while the caller gets it. It should be
 * quick and keep little, since it runs where the caller reads.
 */
export interface SettleReader {
  /** Reads the next chunk of the body, with its Content-Encoding undone. */
  feed(chunk: Uint8Array): void;
  /**
   * What the call has cost; `undefined` leaves it as it was charged. It is called once: when the body has ended, or was given up.
   */
  end(): Cost | undefined;
}

/** The fields of a response: those of `fetch`, of `node:http`, of undici, or pairs. */
export type ResponseHeaders =
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** What is known of a response besides its fields. */
export interface ObservationOptions {
  /** When the response came, in milliseconds since 1970; by default now. A `Date` of the response corrects it. */
  readonly dateMs?: number;
  /** The status. Without it no response is taken for a refusal. */
  readonly status?: number;
  /** The body, as it came. It is read of a 403, 429 and 503. */
  readonly body?: string | Uint8Array;
  /** The longest wait that is believed; by default an hour. */
  readonly maxLearnedWaitMs?: number;
}

const OPTIONS = { dateMs: ['number'], status: ['number'], body: ['string', 'object'], maxLearnedWaitMs: ['number'] };

/** Names and values of fields, which take turns. */
function flat(headers: ResponseHeaders): string[] {
  const fields: string[] = [];
  const add = (name: unknown, value: unknown): void => {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) fields.push(String(name), String(one));
    }
  };
  if (typeof headers === 'object' && headers !== null && Symbol.iterator in headers) {
    for (const pair of headers) {
      if (!Array.isArray(pair)) throw wrong(headers);
      add(pair[0], pair[1]);
    }
  } else if (isRecord(headers)) {
    for (const [name, value] of Object.entries(headers)) add(name, value);
  } else {
    throw wrong(headers);
  }
  return fields;
}

const FIELD_TYPES = {
  name: 'string',
  limit: 'number',
  windowMs: 'number',
  unit: 'string',
  remaining: 'number',
  resetAfterMs: 'number',
  retryAfterMs: 'number',
  scope: 'string',
} as const;

/** What `observe` was given, without what is undefined. */
export function observationsOf(given: Observation | readonly Observation[]): native.Observation[] {
  const several: readonly Observation[] = Array.isArray(given) ? given : [given];
  return several.map((said) => {
    if (!isRecord(said)) throw new ConfigError(`observe cannot learn of ${describe(said)}: give what observations() returns`);
    const fields: Record<string, unknown> = {};
    for (const [name, type] of Object.entries(FIELD_TYPES)) {
      const value = said[name as keyof Observation];
      if (value === undefined || value === null) continue;
      checkType(name, value, [type]);
      fields[name] = value;
    }
    return fields as native.Observation;
  });
}

function wrong(headers: unknown): ConfigError {
  return new ConfigError(
    `observations cannot read ${describe(headers)}: give the headers of a response, or pairs of names and values`,
  );
}

/**
 * What a response says of the limits of its service: an Observation for each limit. One with `retryAfterMs` comes first. What is
 * absurd is ignored.
 */
export function observations(headers: ResponseHeaders, options: ObservationOptions = {}): Observation[] {
  checkOptions(options, Object.keys(OPTIONS), 'observations', 'dateMs: Date.now()');
  for (const [name, types] of Object.entries(OPTIONS)) {
    const value = options[name as keyof ObservationOptions];
    if (value !== undefined) checkType(name, value, types);
  }
  if (typeof options.body === 'object' && !(options.body instanceof Uint8Array)) {
    throw new ConfigError(`body cannot be ${describe(options.body)}: it must be a string or a Uint8Array`);
  }
  const { dateMs = Date.now(), status, body, maxLearnedWaitMs } = options;
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const read = unwrap(native.readResponse(flat(headers), dateMs, status, bytes, maxLearnedWaitMs));
  return read.observations as Observation[];
}
