// Functions that announce Decisions over HTTP, for `Request` and `Response` of the platform and for `node:http`.
//
//     const decision = await limiter.check('api', clientIp()(request));
//     if (!decision.allowed) return refuse(response, decision);
//     setFields(response, decision);

import { Decision } from './decision.js';
import { ConfigError, describe, KeyInvalid } from './errors.js';
import { type NodeRequest, nodeRequestAdapter, type RequestAdapter } from './http/adapter.js';
import { announce, checkHeaders, type HeaderChoice, setInRecord } from './http/fields.js';
import { type ClientIpOptions, keysOf } from './http/keys.js';
import { placedKey as placed } from './http/notation-place.js';
import type { WebResponse } from './http/refusal.js';
import * as refusals from './http/refusal.js';

export type { HeaderChoice } from './http/fields.js';
export { MEDIA_TYPE } from './http/refusal.js';

/** A `Request` of the platform. */
export interface WebRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: { get(name: string): string | null };
}

/** Returns the key of a request. `address` is the address of the sender, which a `Request` does not have. */
export type RequestKey = (request: NodeRequest | WebRequest, address?: string) => string;

function isWeb(request: NodeRequest | WebRequest): request is WebRequest {
  return typeof request.headers.get === 'function';
}

/** The addresses that were given with requests. */
const addresses = new WeakMap<object, string>();

const node = nodeRequestAdapter<NodeRequest>('tidegate/http');
const keys = keysOf<NodeRequest | WebRequest>({
  ...(node as RequestAdapter<NodeRequest | WebRequest>),
  header: (request, name) => (isWeb(request) ? (request.headers.get(name) ?? undefined) : node.header(request, name)),
  peer(request) {
    return addresses.get(request) ?? (isWeb(request) ? undefined : node.peer(request));
  },
  withoutPeer(request) {
    if (!isWeb(request)) return undefined;
    return new KeyInvalid(
      'tidegate/http: a Request does not say who sent it: give the address too, as in clientIp()(request, address). It is ' +
        'server.requestIP(request).address in Bun, info.remoteAddr.hostname in Deno. Where no server says it, as in Next, count the ' +
        'proxies that write X-Forwarded-For, as in clientIp({ trustedProxies: 1 })(request)',
    );
  },
  overUnix: (request) => !isWeb(request) && node.overUnix(request),
});

function withAddress(key: (request: NodeRequest | WebRequest) => string): RequestKey {
  return (request, address) => {
    if (address !== undefined) addresses.set(request, address);
    return key(request);
  };
}

/** The key is the client's address. */
export function clientIp(options?: ClientIpOptions): RequestKey {
  return withAddress(keys.clientIp(options));
}

/** The key is the value of a header, hashed before it is stored. A request without the header is limited by its address. */
export function header(name: string, options?: ClientIpOptions): RequestKey {
  return withAddress(keys.header(name, options));
}

/** One budget for all clients, under this key. */
export function fixed(name: string): RequestKey {
  return keys.fixed(name);
}

/**
 * Returns the key that a notation at a place counts under, for `peek`, `clear` and similar calls. An empty place is the
 * whole application. `method` is the method of the request, for a limit with `perMethod`.
 */
export function placedKey(place: string, key: string, method?: string): string {
  return placed(place, key, method?.toUpperCase());
}

/** A response of `node:http`. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

/** The fields of every refusal. If a cache kept one, it would still answer with it after the wait. */
const REFUSED = { 'Cache-Control': 'no-store', 'Content-Type': refusals.MEDIA_TYPE };

/** A Decision, or several that one answer announces. */
type Decisions = Decision | readonly Decision[];

function listed(decisions: Decisions): readonly Decision[] {
  const all: readonly unknown[] = Array.isArray(decisions) ? decisions : [decisions];
  if (all.every((one) => one instanceof Decision)) return all;
  throw new ConfigError('tidegate/http: give a Decision, or a list of them: a copy of one has not what the fields say');
}

/** Returns the first Decision that refused, or else the first one. */
function leadOf(decisions: Decisions): Decision {
  const all = listed(decisions);
  const lead = all.find(({ allowed }) => !allowed) ?? all[0];
  if (lead === undefined) throw new ConfigError('tidegate/http: give a Decision, or a list of them that is not empty');
  return lead;
}

/** Returns the fields of an answer by name: those that announce the limits, and `Retry-After` for a refusal. */
export function fields(decisions: Decisions, headers: HeaderChoice = 'both'): Record<string, string> {
  checkHeaders(headers);
  const lead = leadOf(decisions);
  const all: Record<string, string> = {};
  announce(listed(decisions), headers, lead.allowed ? undefined : refusals.retryAfter(lead), setInRecord, all);
  return all;
}

/** Returns the status of a refusal: 429, or 503 if the store is missing. */
export function status(decisions: Decisions): 429 | 503 {
  return refusals.status(leadOf(decisions));
}

/** Returns the body of a refusal, as `application/problem+json`. */
export function problem(decisions: Decisions): string {
  return refusals.problem(leadOf(decisions));
}

/** Returns a refusal as a `Response`. */
export function refusal(decisions: Decisions, headers: HeaderChoice = 'both'): WebResponse {
  const all = { ...fields(decisions, headers), ...REFUSED };
  return new Response(problem(decisions), { status: status(decisions), headers: all });
}

/** Returns a copy of a `Response` with the fields that announce the limits. */
export function withFields(response: WebResponse, decisions: Decisions, headers: HeaderChoice = 'both'): WebResponse {
  // It is a copy, because the fields of a response that came from elsewhere cannot be changed.
  const copy = new Response(response.body, response);
  for (const [name, value] of Object.entries(fields(decisions, headers))) copy.headers.set(name, value);
  return copy;
}

/** Sets the fields that announce the limits. */
export function setFields(response: NodeResponse, decisions: Decisions, headers: HeaderChoice = 'both'): void {
  if (typeof response?.setHeader !== 'function') {
    throw new ConfigError(`tidegate/http: setFields needs a response of node:http, not ${describe(response)}`);
  }
  for (const [name, value] of Object.entries(fields(decisions, headers))) response.setHeader(name, value);
}

/** Answers a request of `node:http` with a refusal. */
export function refuse(response: NodeResponse, decisions: Decisions, headers: HeaderChoice = 'both'): void {
  setFields(response, decisions, headers);
  response.statusCode = status(decisions);
  for (const [name, value] of Object.entries(REFUSED)) response.setHeader(name, value);
  response.end(problem(decisions));
}
