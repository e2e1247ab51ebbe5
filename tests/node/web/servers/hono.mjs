import { Readable } from 'node:stream';
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import * as adapter from 'tidegate/hono';
import { listening } from './listening.mjs';

/** The same application for every runtime. */
export function application({ limits, routes = [], twice, handler, failed }) {
  const app = new Hono();
  app.use(async (context, next) => {
    const [user, claims] = [context.req.header('x-user'), context.req.header('x-claims')];
    if (user !== undefined) context.set('user', JSON.parse(user));
    if (claims !== undefined) context.set('jwtPayload', JSON.parse(claims));
    await next();
  });
  for (const options of limits) {
    const middleware = adapter.rateLimit(options);
    app.use(middleware);
    if (twice) app.use(middleware);
  }
  for (const [path, ...all] of routes) app.all(path, ...all.map((options) => adapter.rateLimit(options)));
  app.all('*', async (context) => {
    const url = new URL(context.req.url);
    const { status = 200, body } = await handler({
      method: context.req.method,
      url: url.pathname + url.search,
      decision: context.get('rateLimit'),
    });
    return new Response(typeof body === 'string' ? (status === 304 ? null : body) : Readable.toWeb(body), { status });
  });
  app.onError((error, context) => {
    if (error.getResponse !== undefined) return error.getResponse();
    failed?.(error);
    return context.text('failed', 500);
  });
  return app;
}

async function start(description) {
  return listening(serve({ fetch: application(description).fetch, hostname: '127.0.0.1', port: 0 }));
}

/** As on Bun and Deno, there are no streams of Node, so a response ends when its body was read. */
async function startBare(description) {
  const { fetch } = application(description);
  const info = (address) => ({ remoteAddr: { hostname: address } });
  const bare = (request, { incoming }) => fetch(request, info(incoming.socket.remoteAddress));
  return listening(serve({ fetch: bare, hostname: '127.0.0.1', port: 0 }));
}

const plainDenials = [(context) => context.json({ slow: 'down' }), () => new Response('{"slow":"down"}')];

export const onHono = { name: 'Hono', adapter, start, plainDenials };
export const onBareHono = { name: 'Hono as on Bun and Deno', adapter, start: startBare, plainDenials };
