// What HTTP says of a Decision, as functions: for `Request` and `Response` of the platform, and for `node:http`.
//
//     const decision = await limiter.check('api', clientIp()(request));
//     if (!decision.allowed) return refuse(response, decision);
//     setFields(response, decision);

import type { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { fields as fieldList, type HeaderChoice } from './http/fields.js';
import { type Keys, keysOf } from './http/keys.js';
import { problem as problemOf, retryAfter as retryAfterOf, status as statusOf } from './http/refusal.js';
import { type NodeRequest, nodeRequestAdapter, type WebResponse } from './http/request-adapter.js';
import { native, throwIfFailed } from './native.js';

export type { HeaderChoice } from './http/fields.js';
export { MEDIA_TYPE } from './http/refusal.js';

const keys: Keys<NodeRequest> = keysOf(nodeRequestAdapter<NodeRequest>('tidegate/http'));
export const clientIp: Keys<NodeRequest>['clientIp'] = keys.clientIp;
export const header: Keys<NodeRequest>['header'] = keys.header;

/** A response of `node:http`. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

/** A Decision, or several that one answer announces. */
type Decisions = Decision | readonly Decision[];

function listed(decisions: Decisions): readonly Decision[] {
  return Array.isArray(decisions) ? decisions : [decisions as Decision];
}

/** The first that refused, else the first. */
function leadOf(decisions: Decisions): Decision {
  const all = listed(decisions);
  const lead = all.find(({ allowed }) => !allowed) ?? all[0];
  if (lead === undefined) throw new ConfigError('tidegate/http: give a Decision, or a list of them that is not empty');
  return lead;
}

/** The fields of an answer by name: what announces the limits, and `Retry-After` of a refusal. */
export function fields(decisions: Decisions, headers: HeaderChoice = 'both'): Record<string, string> {
  throwIfFailed(native.headerChoice(String(headers)));
  const lead = leadOf(decisions);
  return Object.fromEntries(fieldList(listed(decisions), headers, lead.allowed ? undefined : retryAfterOf(lead)));
}

/** The status of a refusal: 429, or 503 when the store is missing. */
export function status(decisions: Decisions): 429 | 503 {
  return statusOf(leadOf(decisions));
}

/** The body of a refusal, as `application/problem+json`. */
export function problem(decisions: Decisions): string {
  return problemOf(leadOf(decisions));
}

/** A refusal as a `Response`. */
export function refusal(decisions: Decisions, headers: HeaderChoice = 'both'): WebResponse {
  const all = { ...fields(decisions, headers), 'Content-Type': native.problemMediaType() };
  return new Response(problem(decisions), { status: status(decisions), headers: all });
}

/** The same `Response` with the fields that announce the limits. */
export function withFields(response: WebResponse, decisions: Decisions, headers: HeaderChoice = 'both'): WebResponse {
  // A copy: the fields of a response that came from elsewhere cannot be changed.
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
  response.setHeader('Content-Type', native.problemMediaType());
  response.end(problem(decisions));
}
