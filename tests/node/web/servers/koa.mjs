import { createServer } from 'node:http';
import Router from '@koa/router';
import Koa from 'koa';
import * as adapter from 'tidegate/koa';
import { listening } from './listening.mjs';

async function start({ limits, routes = [], twice, trust, handler, failed }) {
  const app = new Koa();
  if (trust !== undefined) app.proxy = trust !== false;
  if (typeof trust === 'number') app.maxIpsCount = trust;
  app.on('error', (error) => failed?.(error));
  app.use((context, next) => {
    const { 'x-user': user, 'x-claims': claims } = context.headers;
    if (user !== undefined) context.state.user = JSON.parse(user);
    if (claims !== undefined) context.state.user = JSON.parse(claims);
    return next();
  });
  for (const options of limits) {
    const middleware = adapter.rateLimit(options);
    app.use(middleware);
    if (twice) app.use(middleware);
  }
  const router = new Router();
  for (const [path, ...all] of routes) {
    router.all(path, ...all.map((options) => adapter.rateLimit(options)), (_context, next) => next());
  }
  app.use(router.routes());
  app.use(async (context) => {
    const { status = 200, body } = await handler({
      method: context.method,
      url: context.url,
      decision: context.state.rateLimit,
    });
    context.status = status;
    context.body = body;
  });
  return listening(createServer(app.callback()).listen(0, '127.0.0.1'));
}

const platform = () => new Response('{"slow":"down"}');
const plainDenials = [
  (context) => {
    context.body = { slow: 'down' };
  },
  platform,
  (context) => {
    context.body = platform();
  },
];

export const onKoa = { name: 'Koa', adapter, start, trust: true, plainDenials };
