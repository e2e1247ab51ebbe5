// Handlers of `Request` and Hono on the runtime's own server, and Express on its version of Node's server: keys, responses, and the
// end of holds.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import express from 'express';
import { Hono } from 'hono';
import { Limiter } from 'tidegate';
import * as onExpress from 'tidegate/express';
import * as onHono from 'tidegate/hono';
import * as onWeb from 'tidegate/web';

const { Bun, Deno } = globalThis;

/** Serves a handler with the runtime's own server. */
function serving(fetch) {
  if (Bun !== undefined) {
    const server = Bun.serve({ fetch, hostname: '127.0.0.1', port: 0 });
    return { url: `http://127.0.0.1:${server.port}`, close: () => server.stop(true) };
  }
  const server = Deno.serve({ hostname: '127.0.0.1', port: 0, onListen() {} }, fetch);
  return { url: `http://127.0.0.1:${server.addr.port}`, close: () => server.shutdown() };
}

/** The tests for both. */
async function limits(url, limiter, policy) {
  const first = await fetch(url);
  assert.equal(first.status, 200);
  assert.equal(await first.text(), '1');
  assert.match(first.headers.get('ratelimit'), new RegExp(`^"${policy}";r=1;t=\\d+$`));
  assert.equal(first.headers.get('ratelimit-policy'), `"${policy}";q=2;w=3600`);
  assert.equal(first.headers.get('x-ratelimit-remaining'), '1');
  await (await fetch(url)).text();
  const refused = await fetch(url);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('content-type'), 'application/problem+json');
  assert.ok(Number(refused.headers.get('retry-after')) > 3_500);
  assert.deepEqual((await refused.json())['violated-policies'], [policy]);
  // Each address has its own limit.
  assert.equal((await limiter.peek(policy, '127.0.0.1')).remaining, 0);
  assert.equal((await limiter.peek(policy, '127.0.0.2')).remaining, 2);
}

async function until(isSo) {
  const deadline = Date.now() + 20_000;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error('a hold was never given back');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const policies = {
  hono: 'fixed-window 2/hour',
  web: 'fixed-window 2/hour',
  express: 'fixed-window 2/hour',
  exports: 'concurrency 1; fixed-window 100/hour',
};
const limiter = new Limiter({ store: process.argv[2], prefix: `web${process.pid}`, policies, timeoutMs: 20_000 });

let finish;
/** Answers with a body that ends after `finish`. */
function stream() {
  const rest = new Promise((resolve) => {
    finish = resolve;
  });
  const bytes = new TextEncoder();
  async function* parts() {
    yield bytes.encode('first ');
    await rest;
    yield bytes.encode('second');
  }
  return new Response(ReadableStream.from?.(parts()) ?? new Response(parts()).body);
}

const app = new Hono();
app.use('/', onHono.rateLimit({ limiter, policy: 'hono' }));
app.use('/stream', onHono.rateLimit({ limiter, policy: 'exports' }));
app.get('/', (context) => context.text(`${context.get('rateLimit').remaining}`));
app.get('/stream', stream);

const handlers = {
  '/': onWeb.rateLimit({ limiter, policy: 'web' })(({ rateLimit }) => new Response(`${rateLimit.remaining}`)),
  '/stream': onWeb.rateLimit({ limiter, policy: 'exports' })(stream),
};
const web = (request, host) => handlers[new URL(request.url).pathname](request, host);

const free = async () => (await limiter.peek('exports', '127.0.0.1')).limits[0].remaining === 1;
for (const [policy, fetch] of Object.entries({ hono: app.fetch, web })) {
  const server = serving(fetch);
  await limits(server.url, limiter, policy);
  for (const ending of ['read to its end', 'given up']) {
    const controller = new AbortController();
    const answer = await globalThis.fetch(`${server.url}/stream`, { signal: controller.signal });
    assert.equal(await free(), false, `${policy}: ${ending}`);
    assert.equal((await globalThis.fetch(`${server.url}/stream`)).status, 429);
    if (ending === 'given up') {
      controller.abort();
      await answer.text().catch(() => {});
      await until(free);
      finish();
    } else {
      finish();
      assert.equal(await answer.text(), 'first second');
      await until(free);
    }
  }
  await server.close();
}

const server = express();
server.use(onExpress.rateLimit({ limiter, policy: 'express' }));
server.get('/', (request, response) => response.send(`${request.rateLimit.remaining}`));
const listening = server.listen(0, '127.0.0.1');
await once(listening, 'listening');
await limits(`http://127.0.0.1:${listening.address().port}`, limiter, 'express');
listening.close();
listening.closeAllConnections();
await limiter.close();
console.log('done');
process.exit();
