// Fastify: a limit for all routes, which a route may override.
//
//     npm install tidegate fastify
//     TIDEGATE_STORE=redis://127.0.0.1:6379/0 node node_fastify.mjs

import Fastify from 'fastify';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/fastify';

const limiter = new Limiter({
  store: process.env.TIDEGATE_STORE ?? 'memory://',
  policies: { all: '100/minute', login: '20/minute; 5/3s' },
});

const app = Fastify();
await app.register(rateLimit, { limiter, policy: 'all' });
app.get('/', async (request) => `${request.rateLimit?.remaining} left\n`);
app.post('/login', { config: { rateLimit: { policy: 'login' } } }, async () => 'welcome\n');
app.get('/health', { config: { rateLimit: false } }, async () => 'fine\n');

console.log(`listening on ${await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT ?? 3000) })}`);
