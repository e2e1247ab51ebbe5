// How each kind of call in Nest is told that it was refused: by the exception of its framework, which filters may answer.

import { createRequire } from 'node:module';
import { HttpException, StreamableFile } from '@nestjs/common';
import type { Decision } from './decision.js';
import type { Admission } from './http/admission.js';
import { MEDIA_TYPE } from './http/refusal.js';
import type { NestRequest, NestResponse } from './nest-call.js';

type NestAdmission = Admission<NestRequest, NestResponse>;

/** Thrown when a request is refused. A filter may answer in its own way; `getResponse` returns the problem. */
export class RateLimitException extends HttpException {
  /** The denial; undefined when the store could not be asked. */
  readonly decision: Decision | undefined;

  constructor(admission: NestAdmission, body: unknown) {
    super((body ?? new Problem(admission.problem())) as object, admission.status, { cause: admission.error });
    this.decision = admission.decision;
  }
}

/** A problem as Nest sends it under its own media type: an object of any other class goes out as `application/json`. */
class Problem extends StreamableFile {
  readonly #body: string;

  constructor(body: string) {
    const bytes = Buffer.from(body);
    super(bytes, { type: MEDIA_TYPE, length: bytes.length });
    this.#body = body;
  }

  toJSON(): unknown {
    return JSON.parse(this.#body);
  }
}

type ErrorOf = new (error: object | string) => Error;

/** Nest's own packages for messages are there where messages are. */
const load = createRequire(__filename);

/** The exception of a refused call. */
export function exceptionOf(type: string, admission: NestAdmission, body: unknown): Error {
  if (body instanceof Error) return body;
  if (type === 'http') return new RateLimitException(admission, body);
  if (type === 'graphql') return new RateLimitException(admission, body ?? details(admission));
  const Exception = (
    type === 'ws' ? load('@nestjs/websockets').WsException : load('@nestjs/microservices').RpcException
  ) as ErrorOf;
  const error = new Exception((body ?? details(admission)) as object);
  return Object.defineProperty(error, 'decision', { value: admission.decision });
}

/** Ends a call whose client did not wait for its admission, so that no handler starts. Its answer reaches no client. */
export function clientGone(): HttpException {
  return new HttpException('the client has gone', 499);
}

/** The problem, with what the fields of an answer say elsewhere. */
function details(admission: NestAdmission): object {
  const { message } = admission.refusal({});
  const { decision } = admission;
  return {
    ...(JSON.parse(admission.problem()) as object),
    message,
    ...(decision === undefined ? {} : { retryAfterMs: decision.retryAfterMs }),
  };
}
