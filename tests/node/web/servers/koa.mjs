import { createServer } from 'node:http';
import Koa from 'koa';
import * as adapter from 'tidegate/koa';
import { listening } from './listening.mjs';

async function start({ limits, twice, trust, handler, failed }) {
  const app = new Koa();
  if (trust !== undefined) app.proxy = trust;
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

export const onKoa = { name: 'Koa', adapter, start, trust: true };
