// Documents limited handlers for @nestjs/swagger: the response 429, with its fields and its problem. Swagger makes its
// document from the metadata of decorators at handlers, and this file adds such metadata.

import { HttpStatus, RequestMethod, type Type } from '@nestjs/common';
import type { Settings } from '../http/settings.js';
import { native } from '../native.js';
import type { NestCall, NestRequest } from './call.js';
import { load } from './gateways.js';

type NestSettings = Settings<NestRequest, NestCall>;
type Handler = (...args: never[]) => unknown;
type Responses = Record<number | string, object>;

/** The metadata keys of routes and of the responses of a handler. */
const [PATH, METHOD, HTTP_CODE, RESPONSES] = ['path', 'method', '__httpCode__', 'swagger/apiResponse'];
/** The static method with the types that Nest's compiler plugin has read. */
const FACTORY = '_OPENAPI_METADATA_FACTORY';
const STATUS = HttpStatus.TOO_MANY_REQUESTS;

/** True if the application has @nestjs/swagger. */
export function hasSwagger(): boolean {
  try {
    load.resolve('@nestjs/swagger');
    return true;
  } catch {
    return false;
  }
}

/** Adds the response to the metadata of a handler, unless the application documents its refusals itself. */
export function documentRefusal(controller: Type, name: string, handler: Handler, settings: NestSettings): void {
  const method = Reflect.getMetadata(METHOD, handler) as RequestMethod | undefined;
  if (Reflect.getMetadata(PATH, handler) === undefined || !mayRefuse(settings, method)) return;
  const known = Reflect.getMetadata(RESPONSES, handler) as Responses | undefined;
  if ([known, Reflect.getMetadata(RESPONSES, controller) as Responses | undefined].some((said) => said?.[STATUS]))
    return;
  const response = JSON.parse(native.openapiResponse(settings.headers)) as { content?: object };
  // Only the application knows its own answer.
  if (settings.options.onDenied !== undefined) delete response.content;
  const others = known ?? responsesOfPlugin(controller, name, handler) ?? { [codeOf(handler)]: { description: '' } };
  Reflect.defineMetadata(RESPONSES, { ...others, [STATUS]: response }, handler);
}

/** True if a handler may be refused. A policy in shadow denies nothing. */
function mayRefuse({ enabled, methods, entries, limiter }: NestSettings, method: RequestMethod | undefined): boolean {
  if (!enabled) return false;
  if (methods !== undefined && method !== undefined && method !== RequestMethod.ALL) {
    if (!methods.has(RequestMethod[method])) return false;
  }
  return entries === undefined || entries.some(({ policy }) => !limiter.policy(policy).shadow);
}

/** Returns the status of a handler without a documented response. Swagger stops adding it once there is one. */
function codeOf(handler: Handler): number {
  const isPost = Reflect.getMetadata(METHOD, handler) === RequestMethod.POST;
  return Reflect.getMetadata(HTTP_CODE, handler) ?? (isPost ? HttpStatus.CREATED : HttpStatus.OK);
}

/** Returns the response that the compiler plugin knows of a handler, which Swagger would not add either. */
function responsesOfPlugin({ prototype }: Type, name: string, handler: Handler): Responses | undefined {
  for (let owner = prototype; owner !== Object.prototype && owner !== null; owner = Object.getPrototypeOf(owner)) {
    const { summary, deprecated, tags, ...response } = owner.constructor?.[FACTORY]?.()[name] ?? {};
    if (Object.keys(response).length === 0) continue;
    load('@nestjs/swagger').ApiResponse({ status: codeOf(handler), ...response })(owner, name, { value: handler });
    return Reflect.getMetadata(RESPONSES, handler);
  }
  return undefined;
}
