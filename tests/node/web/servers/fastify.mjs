import fastify5 from 'fastify';
import fastify4 from 'fastify4';
import * as adapter from 'tidegate/fastify';
import { listening } from './listening.mjs';

const start =
  (Fastify) =>
  async ({ limits, routes = [], limiter, twice, trust, handler, failed }) => {
    const app = Fastify({ ...(trust === undefined ? {} : { trustProxy: trust }), forceCloseConnections: true });
    app.decorateRequest('user', null);
    app.addHook('onRequest', async (request) => {
      const { 'x-user': user, 'x-claims': claims } = request.headers;
      if (user !== undefined) request.user = JSON.parse(user);
      if (claims !== undefined) request.user = JSON.parse(claims);
    });
    app.setErrorHandler((error, _request, reply) => {
      // Fastify answers a refusal.
      if (error.statusCode === 429 || error.statusCode === 503) return reply.send(error);
      failed?.(error);
      return reply.code(500).send('failed');
    });
    for (const options of limits) {
      await app.register(adapter.rateLimit, options);
      if (twice) await app.register(adapter.rateLimit, options);
    }
    // Routes name their limits in their configuration, so a plugin without a policy is enough.
    if (routes.length > 0 && limits.length === 0) await app.register(adapter.rateLimit, { limiter });
    const answer = async (request, reply) => {
      const { status = 200, body } = await handler({
        method: request.method,
        url: request.url,
        decision: request.rateLimit ?? undefined,
      });
      return reply.code(status).send(body);
    };
    for (const [path, rateLimit] of routes) app.all(path, { config: { rateLimit } }, answer);
    app.all('/*', answer);
    await app.listen({ host: '127.0.0.1', port: 0 });
    return { ...(await listening(app.server)), close: () => app.close() };
  };

const send = (_request, _decision, reply) => void reply.send({ slow: 'down' });
const platform = () => new Response('{"slow":"down"}');

export const onFastify4 = { name: 'Fastify 4', adapter, start: start(fastify4), trust: true, plainDenials: [send] };
export const onFastify5 = {
  name: 'Fastify 5',
  adapter,
  start: start(fastify5),
  trust: true,
  plainDenials: [send, platform, (_request, _decision, reply) => void reply.send(platform())],
};
