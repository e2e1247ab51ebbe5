import Fastify from 'fastify';
import * as adapter from 'tidegate/fastify';
import { listening } from './listening.mjs';

async function start({ limits, twice, trust, handler, failed }) {
  const app = Fastify({ ...(trust === undefined ? {} : { trustProxy: trust }), forceCloseConnections: true });
  app.decorateRequest('user', null);
  app.addHook('onRequest', async (request) => {
    const { 'x-user': user, 'x-claims': claims } = request.headers;
    if (user !== undefined) request.user = JSON.parse(user);
    if (claims !== undefined) request.user = JSON.parse(claims);
  });
  app.setErrorHandler((error, _request, reply) => {
    failed?.(error);
    reply.code(500).send('failed');
  });
  for (const options of limits) {
    await app.register(adapter.rateLimit, options);
    if (twice) await app.register(adapter.rateLimit, options);
  }
  app.all('/*', async (request, reply) => {
    const { status = 200, body } = await handler({
      method: request.method,
      url: request.url,
      decision: request.rateLimit ?? undefined,
    });
    return reply.code(status).send(body);
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { ...(await listening(app.server)), close: () => app.close() };
}

export const onFastify = { name: 'Fastify', adapter, start, trust: true };
