// Express: a limit for all routes, a tighter one for a route, exports that are held while they stream, and metrics.
//
//     npm install tidegate express prom-client
//     TIDEGATE_STORE=redis://127.0.0.1:6379/0 node node_express.mjs

import express from 'express';
import { register } from 'prom-client';
import { Limiter } from 'tidegate';
import { clientIp, header, rateLimit } from 'tidegate/express';
import { collectMetrics } from 'tidegate/prometheus';

const limiter = new Limiter({
  store: process.env.TIDEGATE_STORE ?? 'memory://',
  policies: {
    all: '100/minute',
    login: '20/minute; 5/3s',
    api: 'gcra 10/s burst 20',
    exports: 'concurrency 2 ttl 30s',
  },
});
// The proxy in front of this server. No other host is trusted with the address of a client.
const key = clientIp({ trustedProxies: ['loopback'] });

collectMetrics(limiter);

const app = express();
app.get('/health', (_request, response) => response.send('fine\n'));
// For Prometheus; ops/ has a dashboard and alerts.
app.get('/metrics', async (_request, response) => {
  response.type(register.contentType).send(await register.metrics());
});
// One call for each request: all of its policies are charged, or none is.
const limited = (...more) => rateLimit({ limiter, policy: ['all', ...more], key });
app.post('/login', limited('login'), (_request, response) => response.send('welcome\n'));
// By API key too, which is hashed before it is stored. By the key alone, a client that makes up keys would have no limit.
app.get('/api/things', limited({ policy: 'api', key: header('X-API-Key') }), (request, response) => {
  response.json({ things: ['a', 'b'], left: request.rateLimit.decisions[1].remaining });
});
// Held until the last byte was sent, or the client has disconnected.
app.get('/export', limited('exports'), (_request, response) => {
  for (let line = 0; line < 1000; line++) response.write(`line ${line}\n`);
  response.end();
});

const server = app.listen(process.env.PORT ?? 3000, () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
