import { Readable } from 'node:stream';
import { serve } from '@hono/node-server';
import * as srvx from 'srvx';
import * as adapter from 'tidegate/web';
import { listening } from './listening.mjs';

/** A handler for every runtime. Its hosts give it one argument, or none. */
export function handlerOf({ limits, routes = [], twice, handler, failed }) {
  const view = async (request) => {
    const url = new URL(request.url);
    const { status = 200, body } = await handler({
      method: request.method,
      url: url.pathname + url.search,
      decision: request.rateLimit,
    });
    return new Response(typeof body === 'string' ? (status === 304 ? null : body) : Readable.toWeb(body), { status });
  };
  const limited = (inner, all) =>
    all.reduceRight((inner, options) => {
      const limit = adapter.rateLimit(options);
      return twice ? limit(limit(inner)) : limit(inner);
    }, inner);
  const all = routes.map(([path, ...options]) => [new RegExp(`^${path.replace('*', '.*')}$`), limited(view, options)]);
  const route = (request, ...rest) => {
    const { pathname } = new URL(request.url);
    const [, found = view] = all.find(([pattern]) => pattern.test(pathname)) ?? [];
    return found(request, ...rest);
  };
  const outer = limited(route, limits);
  return async (request, ...rest) => {
    const [user, claims] = [request.headers.get('x-user'), request.headers.get('x-claims')];
    if (user !== null) request.user = JSON.parse(user);
    if (claims !== null) request.auth = JSON.parse(claims);
    try {
      return await outer(request, ...rest);
    } catch (error) {
      failed?.(error);
      return error.getResponse?.() ?? new Response('failed', { status: 500 });
    }
  };
}

async function start(description) {
  return listening(serve({ fetch: handlerOf(description), hostname: '127.0.0.1', port: 0 }));
}

/** As in Deno, there are no streams of Node, so a response ends when its body was read. */
async function startBare(description) {
  const handler = handlerOf(description);
  const bare = (request, { incoming }) =>
    handler(request, { remoteAddr: { hostname: incoming.socket.remoteAddress, transport: 'tcp' } });
  return listening(serve({ fetch: bare, hostname: '127.0.0.1', port: 0 }));
}

/** As in h3 and Nitro, the request carries its host. */
async function startHosted(description) {
  const server = srvx.serve({
    fetch: handlerOf(description),
    hostname: '127.0.0.1',
    port: 0,
    silent: true,
    gracefulShutdown: false,
  });
  return listening((await server.ready()).node.server);
}

const plainDenials = [() => Response.json({ slow: 'down' }), () => new Response('{"slow":"down"}')];

export const onWeb = { name: 'Web', adapter, start, plainDenials };
export const onBareWeb = { name: 'Web as in Bun and Deno', adapter, start: startBare, plainDenials };
export const onHostedWeb = { name: 'Web as in h3', adapter, start: startHosted, plainDenials };
