// Hono: the same application on Node, Bun and Deno. Here on Node.
//
//     npm install tidegate hono @hono/node-server
//     TIDEGATE_STORE=redis://127.0.0.1:6379/0 node node_hono.mjs

import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/hono';

const limiter = new Limiter({
  store: process.env.TIDEGATE_STORE ?? 'memory://',
  policies: { all: '100/minute', login: '20/minute; 5/3s' },
});

const app = new Hono();
app.get('/health', (context) => context.text('fine\n'));
app.get('/', rateLimit({ limiter, policy: 'all' }), (context) =>
  context.text(`${context.get('rateLimit').remaining} left\n`),
);
// One call: both policies are charged, or none is.
app.post('/login', rateLimit({ limiter, policy: ['all', 'login'] }), (context) => context.text('welcome\n'));

serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env.PORT ?? 3000) }, ({ port }) => {
  console.log(`listening on http://127.0.0.1:${port}`);
});
