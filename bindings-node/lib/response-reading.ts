// Reads the limits in a response. Nothing is checked but its fields.

import { ConfigError, describe } from './errors.js';
import { checkType, isRecord } from './given-options.js';
import { type binding, native, unwrap } from './native.js';

/** A limit as a response announces it, or the wait that it asks for. Values that it does not give are missing. */
export interface Observation {
  /** The name that the response gives the limit: of a policy, a bucket or a resource. */
  readonly name?: string;
  /** The count of the limit. */
  readonly limit?: number;
  /** The length of time for which the count holds. */
  readonly windowMs?: number;
  /** The unit that the limit counts, such as `tokens`. */
  readonly unit?: string;
  /** The units that are left, never more than `limit`. */
  readonly remaining?: number;
  /** The time until the limit is reset, or until more units are left if the response gives that. 0 if it has passed. */
  readonly resetAfterMs?: number;
  /** The time until the request may be made again. */
  readonly retryAfterMs?: number;
  /** The requests that `retryAfterMs` applies to: those of the key, or all requests to the service. */
  readonly scope: 'key' | 'all';
}

/** The fields of a response: those of `fetch`, of `node:http`, of undici, or pairs. */
export type ResponseHeaders =
  | Iterable<readonly [string, string]>
  | Readonly<Record<string, string | number | readonly string[] | undefined>>;

/** Returns the names and values of fields, in turn. */
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

function wrong(headers: unknown): ConfigError {
  return new ConfigError(
    `observations must get the headers of a response, or pairs of names and values, not ${describe(headers)}`,
  );
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

/** Checks the argument of `observe`, and leaves out fields that are undefined. */
export function observationsOf(given: Observation | readonly Observation[]): binding.Observation[] {
  const several: readonly Observation[] = Array.isArray(given) ? given : [given];
  return several.map((said) => {
    if (!isRecord(said)) throw new ConfigError(`observe must get the result of observations(), not ${describe(said)}`);
    const fields: Record<string, unknown> = {};
    for (const [name, type] of Object.entries(FIELD_TYPES)) {
      const value = said[name as keyof Observation];
      if (value === undefined || value === null) continue;
      checkType(name, value, [type]);
      fields[name] = value;
    }
    return fields as binding.Observation;
  });
}

let speaking: RegExp | undefined;

/** True if a field may announce limits. In nearly every response none does, and the fields need not cross. */
export function mayTell(headers: ResponseHeaders): boolean {
  speaking ??= new RegExp(native.speakingFields(), 'i');
  if (!(Symbol.iterator in headers)) return Object.keys(headers).some((name) => speaking?.test(name));
  for (const [name] of headers) if (speaking.test(name)) return true;
  return false;
}

/** Reads a response: an Observation for each limit, the wait before a retry, and if only the body can name it. */
export function readResponse(
  headers: ResponseHeaders,
  dateMs: number,
  status: number | undefined,
  body: Uint8Array | undefined,
  maxLearnedWaitMs: number | undefined,
): binding.ReadResponse {
  return unwrap(native.readResponse(flat(headers), dateMs, status, body, maxLearnedWaitMs));
}
