// Tools of MCP, for servers of `@modelcontextprotocol/sdk` 1 and `@modelcontextprotocol/server` 2.
//
//     limited(server, { limiter, policy: '20/minute', tools: { export: 'concurrency 2' } });

import type { CancelSignal } from './cancel-signal.js';
import { ConfigError, describe, KeyInvalid } from './errors.js';
import { type Keys, keysOf } from './http/keys.js';
import { callAdapter, runLimited } from './http/limited-call.js';
import type { Place } from './http/notation-place.js';
import type { LayerOptions, PolicyChoice, RouteOptions } from './http/rate-limit-options.js';
import { refusalError, retryAfter } from './http/refusal.js';
import { checkLayer, routeLimits, routeOptions } from './http/settings.js';

/** A call of a tool. */
export interface McpCall {
  /** The name of the tool, which the client chooses. */
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** The id of the session. A client may open any number of them. */
  readonly session: string | undefined;
  /** The id of the client, if your application has authenticated it. */
  readonly client: string | undefined;
  /** Everything that the SDK gives to the handler of a tool beside its arguments. */
  readonly context: McpContext;
}

/** The argument of both versions of the SDK. */
export interface McpContext {
  readonly sessionId?: string | undefined;
  readonly signal?: CancelSignal;
  readonly authInfo?: { readonly clientId: string } | undefined;
  readonly requestInfo?: { readonly headers: Readonly<Record<string, string | string[] | undefined>> } | undefined;
  readonly mcpReq?: { readonly signal: CancelSignal };
  readonly http?:
    | {
        readonly authInfo?: McpContext['authInfo'];
        readonly req?: { readonly headers: { get(name: string): string | null } };
      }
    | undefined;
}

/** The options of `limited`. */
export interface LimitedOptions extends LayerOptions<McpCall, unknown> {
  /** The limits of single tools by their names, in place of `policy`: a policy, options, or false for none. */
  tools?: Readonly<Record<string, PolicyChoice<McpCall> | RouteOptions<McpCall, unknown> | false>> | undefined;
}

/** A server of either version of the SDK. */
export type McpServer = object;

type Handler = (request: McpRequest, context: McpContext) => Promise<unknown>;
interface McpRequest {
  readonly params?: { readonly name?: unknown; readonly arguments?: McpCall['args'] };
}

/** The code of an error of JSON-RPC for too many requests, as tRPC uses it. */
const TOO_MANY_REQUESTS = -32029;
const INTERNAL_ERROR = -32603;
const NAME = 'tidegate/mcp';

const adapter = callAdapter<McpCall, unknown>(
  {
    name: NAME,
    path: ({ tool }) => tool,
    header({ context: { requestInfo, http } }, name) {
      const value = http?.req?.headers.get(name) ?? requestInfo?.headers[name.toLowerCase()] ?? undefined;
      return Array.isArray(value) ? value.join(', ') : value;
    },
    withoutPeer: () =>
      new KeyInvalid(
        `${NAME}: this client is not authenticated, and it may open as many sessions as it likes: give a key, such as ` +
          "header('X-API-Key') or clientIp({ trustedProxies: 1 }), or key: ({ session }) => session ?? 'none'",
      ),
    user: ({ client }) => client,
    claims: ({ context }) => context.authInfo ?? context.http?.authInfo,
  },
  (refused, message) =>
    Object.assign(refusalError(refused), {
      message,
      code: refused.status === 429 ? TOO_MANY_REQUESTS : INTERNAL_ERROR,
      data: { ...JSON.parse(refused.problem()), retryAfter: retryAfter(refused.decision) },
    }),
);

export const { clientIp, header, user, claim, fixed }: Keys<McpCall> = keysOf(adapter);
const authenticated = user();

/** The default key: the authenticated client. Without HTTP there is one client, such as that of stdio. */
function clientOf(call: McpCall): string {
  const { sessionId, requestInfo, http } = call.context;
  const isAlone = sessionId === undefined && requestInfo === undefined && http === undefined;
  return isAlone ? 'local' : authenticated(call);
}

/**
 * Limits the tools of a server, and returns it. A refused call gets an error of JSON-RPC with `retryAfter` in its data. All other
 * requests are free, such as `initialize`, `ping` and lists. A `concurrency` limit is held while the tool runs.
 */
export function limited<S extends McpServer>(server: S, options: LimitedOptions): S {
  const { tools = {}, ...given } = checkLayer(options, NAME, ['tools']);
  const layer = { ...given, key: given.key ?? clientOf };
  const limitsOf = (own: unknown, tool: Place<McpCall>) =>
    routeLimits(adapter, layer, routeOptions(own, NAME), '', tool);
  const others = limitsOf(undefined, ({ tool }) => tool);
  const settings = new Map(Object.entries(tools).map(([tool, own]) => [tool, limitsOf(own, tool)]));
  const { handlers } = protocolOf(server);
  const limit =
    (handler: Handler): Handler =>
    (request, context) => {
      const tool = String(request.params?.name);
      const { sessionId: session, authInfo = context.http?.authInfo, signal = context.mcpReq?.signal } = context;
      const call = { tool, args: request.params?.arguments ?? {}, session, client: authInfo?.clientId, context };
      return runLimited(
        settings.has(tool) ? settings.get(tool) : others,
        call,
        () => handler(request, context),
        signal,
      );
    };
  const set = handlers.set.bind(handlers);
  handlers.set = (method, handler) => set(method, method === 'tools/call' ? limit(handler) : handler);
  const known = handlers.get('tools/call');
  if (known !== undefined) handlers.set('tools/call', known);
  return server;
}

/** Returns the handlers of a server by their methods. Both versions of the SDK keep them in this map. */
function protocolOf(server: object): { handlers: Map<string, Handler> } {
  const { server: inner = server } = server as { readonly server?: object };
  const { _requestHandlers: handlers } = inner as { readonly _requestHandlers?: unknown };
  if (handlers instanceof Map) return { handlers };
  throw new ConfigError(
    `${NAME}: ${describe(server)} is not an MCP server: give an McpServer or a Server of the official SDK`,
  );
}
