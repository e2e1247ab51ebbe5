// Documents limited handlers for @nestjs/swagger: the response 429, with its fields and its problem. Swagger makes its
// document from the metadata of decorators at handlers, and this file adds such metadata.

import { HttpStatus, RequestMethod, type Type } from '@nestjs/common';
import type { Settings } from '../http/settings.js';
import { native } from '../native.js';
import type { NestCall, NestRequest } from './call.js';
import { type Handler, load } from './gateways.js';

export type NestSettings = Settings<NestRequest, NestCall>;
type Responses = Record<number | string, object>;

/** The metadata keys of routes and of the responses of a handler. */
const [PATH, METHOD, HTTP_CODE, RESPONSES] = ['path', 'method', '__httpCode__', 'swagger/apiResponse'];
const STATUS = HttpStatus.TOO_MANY_REQUESTS;

/** Adds the response to the metadata of a handler that may be refused, unless the application documents its refusals itself. */
export function documentRefusal(controller: Type, name: string, handler: Handler, settings: NestSettings): void {
  const { enabled, methods, entries, limiter, headers, options } = settings;
  const method: RequestMethod = Reflect.getMetadata(METHOD, handler) ?? RequestMethod.ALL;
  const isOther = method !== RequestMethod.ALL && methods?.has(RequestMethod[method] as string) === false;
  // A policy in shadow denies nothing.
  const mayDeny = entries === undefined || entries.some(({ policy }) => !limiter.policy(policy).shadow);
  if (Reflect.getMetadata(PATH, handler) === undefined || !enabled || isOther || !mayDeny) return;
  const known: Responses | undefined = Reflect.getMetadata(RESPONSES, handler);
  if (known?.[STATUS] ?? Reflect.getMetadata(RESPONSES, controller)?.[STATUS]) return;
  const response = JSON.parse(native.openapiResponse(headers)) as { content?: object };
  // Only the application knows its own answer.
  if (options.onDenied !== undefined) delete response.content;
  // Swagger stops adding the response with this status once there is another one.
  const created = method === RequestMethod.POST ? HttpStatus.CREATED : HttpStatus.OK;
  const status: number = Reflect.getMetadata(HTTP_CODE, handler) ?? created;
  const others = known ?? responsesOfPlugin(controller, name, handler, status) ?? { [status]: { description: '' } };
  Reflect.defineMetadata(RESPONSES, { ...others, [STATUS]: response }, handler);
}

/** Returns the response that Nest's compiler plugin has read of a handler, which Swagger would not add either. */
function responsesOfPlugin({ prototype }: Type, name: string, value: Handler, status: number): Responses | undefined {
  for (let owner = prototype; owner !== Object.prototype && owner !== null; owner = Object.getPrototypeOf(owner)) {
    const { summary, deprecated, tags, ...response } = owner.constructor?._OPENAPI_METADATA_FACTORY?.()[name] ?? {};
    if (Object.keys(response).length === 0) continue;
    load('@nestjs/swagger').ApiResponse({ status, ...response })(owner, name, { value });
    return Reflect.getMetadata(RESPONSES, value);
  }
  return undefined;
}
