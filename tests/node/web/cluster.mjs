// Serves one limit from a cluster of workers, or alone if there are none. Prints the number of admitted requests out of
// 100, and the warnings with their processes.
//
//     node cluster.mjs STORE WORKERS

import cluster from 'node:cluster';
import { once } from 'node:events';
import { Agent } from 'node:http';
import process from 'node:process';
import express from 'express';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/express';
import { TidegateStore } from 'tidegate/express-rate-limit';
import { get } from './client.mjs';

const [, , store, workers] = process.argv;

/** The port on which this process serves. */
async function serve() {
  const limiter = new Limiter({ store, policies: { ten: '10/hour' }, timeoutMs: 20_000 });
  const app = express();
  app.get('/', rateLimit({ limiter, policy: 'ten' }), (_request, response) => response.send('hello'));
  app.get('/other', rateLimit({ limiter, policy: '5/hour' }), (_request, response) => response.send('hello'));
  new TidegateStore({ limiter });
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}

if (cluster.isPrimary) {
  const warnings = [];
  process.on('warning', ({ name, message }) => warnings.push([process.pid, name, message]));
  const told = () =>
    new Promise((resolve) => {
      const worker = cluster.fork();
      worker.on('message', ({ warning, port }) => {
        if (warning === undefined) resolve(port);
        else warnings.push([worker.process.pid, ...warning]);
      });
    });
  const ports = await Promise.all(Number(workers) === 0 ? [serve()] : Array.from({ length: Number(workers) }, told));
  // Each request has a new connection, because the cluster hands out connections.
  const agent = new Agent({ keepAlive: false });
  const statuses = [];
  for (let request = 0; request < 100; request++) {
    statuses.push((await get(`http://127.0.0.1:${ports[0]}`, { agent })).status);
  }
  const counted = (status) => statuses.filter((one) => one === status).length;
  const said = { admitted: counted(200), refused: counted(429), warnings };
  process.stdout.write(`${JSON.stringify(said)}\n`, () => process.exit());
} else {
  process.on('warning', ({ name, message }) => process.send({ warning: [name, message] }));
  process.send({ port: await serve() });
}
