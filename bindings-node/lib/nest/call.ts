// Reads the calls of a Nest guard: HTTP requests, fields of GraphQL, and messages of microservices and websockets. A
// refused call gets the exception of its framework, which filters may answer.

import type { ServerResponse } from 'node:http';
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
    if (body instanceof Error) throw body;
    const told = body ?? (type === 'http' ? problemOf(refused) : details(refused));
    if (type === 'http' || type === 'graphql') throw new RateLimitException(refused, told);
    const { WsException, RpcException } = load(type === 'ws' ? '@nestjs/websockets' : '@nestjs/microservices');
    throw Object.defineProperty(new (WsException ?? RpcException)(told), 'decision', { value: refused.decision });
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

/** The client of a message of `ws` or of socket.io, or the context of a transport: TCP has the socket, gRPC the metadata. */
interface MessageClient {
  readonly _socket?: NodeRequest['socket'];
  readonly handshake?: { readonly address?: string; readonly headers?: NodeRequest['headers'] };
  readonly user?: unknown;
  readonly data?: { readonly user?: unknown };
  getSocketRef?(): { readonly socket?: NodeRequest['socket'] };
  getMap?(): NodeRequest['headers'];
}

/** Returns the call that a guard is asked about. */
export function callOf(context: ExecutionContext): NestCall {
  const type: string = context.getType();
  const web = context.switchToHttp();
  if (type === 'http') return { type, request: web.getRequest(), response: web.getResponse() };
  // One request may hold several fields of GraphQL, and one connection many messages: each is a call.
  const memory = context.getArgs();
  if (type === 'graphql') {
    const { req, res, reply, request = req ?? reply?.request }: GraphqlContext = context.getArgByIndex(2) ?? {};
    const response = res ?? reply ?? req?.res;
    if (request === undefined || response === undefined) {
      throw new ConfigError(
        `${NAME}: the context of GraphQL has no request and response: put them there, as in context: ({ req, res }) => ({ req, res })`,
      );
    }
    return { type, request, response, memory };
  }
  return { type, request: messageOf(context, type === 'ws'), memory };
}

function messageOf(context: ExecutionContext, isWebsocket: boolean): NestRequest {
  const ws = isWebsocket ? context.switchToWs() : undefined;
  const client: MessageClient = (ws ? ws.getClient() : context.switchToRpc().getContext()) ?? {};
  const pattern: unknown = ws ? ws.getPattern() : Reflect.getMetadata('microservices:pattern', context.getHandler());
  const { address: remoteAddress, headers = client.getMap?.() ?? {} } = client.handshake ?? {};
  return {
    context,
    client,
    data: (ws ?? context.switchToRpc()).getData(),
    pattern,
    method: '',
    url: isWebsocket ? `ws ${pattern}` : `rpc ${JSON.stringify(pattern)}`,
    headers,
    socket: client._socket ?? client.getSocketRef?.().socket ?? { remoteAddress },
    user: client.user ?? client.data?.user,
  } as NestRequest;
}

/** Thrown if a request is refused. A filter may answer in its own way. `getResponse` returns the problem. */
export class RateLimitException extends HttpException {
  /** The denial. Undefined if the store could not be asked. */
  readonly decision: Decision | undefined;

  constructor(refused: Refused, body: unknown) {
    super(body as object, refused.status, { cause: refused.error });
    this.decision = refused.decision;
  }
}

/** Returns a problem that Nest sends with its own media type. Any other object goes out as `application/json`. */
function problemOf(refused: Refused): StreamableFile {
  const body = Buffer.from(refused.problem());
  const file = new StreamableFile(body, { type: MEDIA_TYPE, length: body.length });
  return Object.assign(file, { toJSON: (): unknown => JSON.parse(body.toString()) });
}

/** Returns the problem, with the facts that a response would carry in its fields. */
function details(refused: Refused): object {
  const { message, decision } = refusalError(refused);
  return { ...JSON.parse(refused.problem()), message, ...(decision && { retryAfterMs: decision.retryAfterMs }) };
}
