// Reads the calls of a Nest guard: HTTP requests, fields of GraphQL, and messages of microservices and websockets. A
// refused call gets the exception of its framework, which filters may answer.

import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type ExecutionContext, HttpException, StreamableFile } from '@nestjs/common';
import type { Decision } from '../decision.js';
import { ConfigError, KeyInvalid } from '../errors.js';
import { type Adapter, type NodeRequest, nodeRequestAdapter } from '../http/adapter.js';
import { expressTrust, fastifyTrust } from '../http/proxy-trust.js';
import { MEDIA_TYPE, type Refused, refusalError } from '../http/refusal.js';
import { load } from './gateways.js';

/** A request of Express or of Fastify, or a message of a microservice or a websocket. */
export interface NestRequest extends NodeRequest {
  /** The Decision of the guard about this request. */
  rateLimit?: Decision;
  /** The data that the client of a message sent. */
  readonly data?: unknown;
  /** The client of a websocket's message, or the transport's context. */
  readonly client?: unknown;
  /** The pattern of a message. */
  readonly pattern?: unknown;
  /** The execution context of Nest that a message has. */
  readonly context?: ExecutionContext;
}

/** A response of Express, a reply of Fastify, or the client of a message. */
export interface NestResponse {
  /** Node's response, if it is another object. */
  readonly raw?: ServerResponse;
  readonly headersSent?: boolean;
  readonly sent?: boolean;
  header(name: string, value: string): unknown;
  status?(code: number): unknown;
}

/** A call that the guard limits, and its response. */
export interface NestCall {
  readonly type: string;
  readonly request: NestRequest;
  /** Undefined for messages, which have no fields and no end. */
  readonly response?: NestResponse;
  /** The object that remembers the admissions of this call. Undefined if that is the request. */
  readonly memory?: object;
}

const NAME = 'tidegate/nest';

const http = nodeRequestAdapter<NestRequest>(NAME);

export const nestAdapter: Adapter<NestRequest, NestCall> = {
  ...http,
  peer(request) {
    const peer = http.peer(request);
    if (request.context === undefined || peer !== undefined || http.overUnix(request)) return peer;
    throw new KeyInvalid(
      `${NAME}: a message of ${request.context.getType()} has no client's address here: give a key, such as ` +
        'key: (message) => message.data.tenant',
    );
  },
  trusts: {
    setting: `${expressTrust.setting}, or ${fastifyTrust.setting},`,
    of: (request) => ('server' in request ? fastifyTrust.of(request as { server: object }) : expressTrust.of(request)),
  },
  throwsRefusals: true,
  setField({ response }, name, value) {
    if (typeof response?.header === 'function') response.header(name, value);
    else (response as ServerResponse | undefined)?.setHeader(name, value);
  },
  setStatus: ({ type, response }, status) => type === 'http' && response?.status?.(status),
  refuse({ type }, body, refused) {
    throw exceptionOf(type, refused, body);
  },
  given: ({ request, response }) => response ?? request.client,
};

/** The contexts of GraphQL servers. */
interface GraphqlContext {
  readonly req?: NestRequest & { readonly res?: NestResponse };
  readonly request?: NestRequest;
  readonly res?: NestResponse;
  readonly reply?: NestResponse & { readonly request?: NestRequest };
}

/** The clients of `ws` and of socket.io. */
interface WebsocketClient {
  readonly _socket?: Socket;
  readonly handshake?: { readonly address?: string; readonly headers?: NodeRequest['headers'] };
  readonly user?: unknown;
  readonly data?: { readonly user?: unknown };
}

/** The contexts of transports: TCP has the socket, gRPC the metadata. */
interface TransportContext {
  getSocketRef?(): { readonly socket?: Socket };
  getMap?(): NodeRequest['headers'];
}

/** Returns the call that a guard is asked about. */
export function callOf(context: ExecutionContext): NestCall {
  const type: string = context.getType();
  if (type === 'http') {
    return { type, request: context.switchToHttp().getRequest(), response: context.switchToHttp().getResponse() };
  }
  // One request may hold several fields of GraphQL, and one connection many messages: each is a call.
  const memory = context.getArgs();
  if (type === 'graphql') {
    const { req, request = req, res, reply } = (context.getArgByIndex(2) ?? {}) as GraphqlContext;
    const found = request ?? reply?.request;
    const response = res ?? reply ?? req?.res;
    if (found === undefined || response === undefined) {
      throw new ConfigError(
        `${NAME}: the context of GraphQL has no request and response: put them there, as in context: ({ req, res }) => ({ req, res })`,
      );
    }
    return { type, request: found, response, memory };
  }
  return { type, request: type === 'ws' ? websocketMessage(context) : rpcMessage(context), memory };
}

function websocketMessage(context: ExecutionContext): NestRequest {
  const ws = context.switchToWs();
  const client = ws.getClient<WebsocketClient>();
  const address = client.handshake?.address;
  return {
    context,
    client,
    data: ws.getData(),
    pattern: ws.getPattern(),
    method: '',
    url: `ws ${ws.getPattern()}`,
    headers: client.handshake?.headers ?? {},
    socket: client._socket ?? (address === undefined ? undefined : { remoteAddress: address }),
    user: client.user ?? client.data?.user,
  } as NestRequest;
}

function rpcMessage(context: ExecutionContext): NestRequest {
  const rpc = context.switchToRpc();
  const client = (rpc.getContext<TransportContext | undefined>() ?? {}) as TransportContext;
  const pattern: unknown = Reflect.getMetadata('microservices:pattern', context.getHandler());
  return {
    context,
    client,
    data: rpc.getData(),
    pattern,
    method: '',
    url: `rpc ${JSON.stringify(pattern)}`,
    headers: client.getMap?.() ?? {},
    socket: client.getSocketRef?.().socket,
  };
}

/** Thrown if a request is refused. A filter may answer in its own way. `getResponse` returns the problem. */
export class RateLimitException extends HttpException {
  /** The denial. Undefined if the store could not be asked. */
  readonly decision: Decision | undefined;

  constructor(refused: Refused, body: unknown) {
    super((body ?? new Problem(refused.problem())) as object, refused.status, { cause: refused.error });
    this.decision = refused.decision;
  }
}

/** A problem that Nest sends with its own media type. An object of any other class goes out as `application/json`. */
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

/** Returns the exception of a refused call. */
function exceptionOf(type: string, refused: Refused, body: unknown): Error {
  if (body instanceof Error) return body;
  if (type === 'http') return new RateLimitException(refused, body);
  if (type === 'graphql') return new RateLimitException(refused, body ?? details(refused));
  const Exception = (
    type === 'ws' ? load('@nestjs/websockets').WsException : load('@nestjs/microservices').RpcException
  ) as ErrorOf;
  const error = new Exception((body ?? details(refused)) as object);
  return Object.defineProperty(error, 'decision', { value: refused.decision });
}

/** Returns the exception for a client that did not wait for its admission, so that no handler starts. It reaches no client. */
export function clientGone(): HttpException {
  return new HttpException('the client has gone', 499);
}

/** Returns the problem, with the facts that a response would carry in its fields. */
function details(refused: Refused): object {
  const { message, decision } = refusalError(refused);
  const wait = decision === undefined ? {} : { retryAfterMs: decision.retryAfterMs };
  return { ...(JSON.parse(refused.problem()) as object), message, ...wait };
}
