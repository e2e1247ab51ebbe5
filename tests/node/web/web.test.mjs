// `tidegate/web` beyond the tests of every adapter: requests checked by hand, their addresses, frameworks, and a counted load.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { Agent, createServer } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { serve } from '@hono/node-server';
import { Elysia } from 'elysia';
import { build } from 'esbuild';
import { fromWebHandler, H3, serve as serveH3 } from 'h3';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { clientIp, rateLimit } from 'tidegate/web';
import { onEachStore } from '../each_store.mjs';
import { get, open, until } from './client.mjs';
import { service } from './programs.mjs';
import { listening } from './servers/listening.mjs';

const ADDRESS = '203.0.113.7';
const root = fileURLToPath(new URL('../../../', import.meta.url));

function limiting(policies = { login: 'fixed-window 2/hour', exports: 'concurrency 1' }) {
  return new Limiter({ policies, clock: new ManualClock() });
}

const request = (headers = {}) => new Request('http://tidegate.test/things?page=2', { headers });

describe('a request that is checked by hand', () => {
  test('is admitted with fields, and refused with a problem', async () => {
    const limit = rateLimit({ limiter: limiting(), policy: 'login' });
    for (const left of [1, 0]) {
      const admission = await limit.check(request(), { address: ADDRESS });
      assert.deepEqual([admission.refused, admission.response], [false, undefined]);
      assert.equal(admission.decision.remaining, left);
      // The fields of a response from elsewhere cannot be changed.
      const given = Response.redirect('http://tidegate.test/', 303);
      const response = admission.respond(given);
      assert.deepEqual([response.status, response.headers.get('location')], [303, 'http://tidegate.test/']);
      assert.equal(response.headers.get('x-ratelimit-remaining'), String(left));
      assert.equal(given.headers.get('x-ratelimit-remaining'), null);
    }
    const { refused, response, decision } = await limit.check(request(), { address: ADDRESS });
    assert.deepEqual([refused, response.status, decision.allowed], [true, 429, false]);
    assert.equal(response.headers.get('content-type'), 'application/problem+json');
    assert.equal(response.headers.get('retry-after'), '3600');
    assert.deepEqual((await response.json())['violated-policies'], ['login']);
    assert.equal((await limit.check(request(), { address: '203.0.113.8' })).refused, false);
  });

  test('holds until its body was read, until it is given up, or until `end`', async () => {
    const limiter = limiting();
    const limit = rateLimit({ limiter, policy: 'exports', key: () => 'all' });
    const free = async () => (await limiter.peek('exports', 'all')).remaining === 1;
    const endings = [
      (admission) => admission.respond(new Response('hello')).text(),
      (admission) => admission.respond(new Response('hello')).body.cancel(),
      (admission) => admission.respond(new Response(null, { status: 204 })),
      (admission) => admission.end(),
    ];
    for (const end of endings) {
      const admission = await limit.check(request());
      assert.equal(await free(), false);
      assert.equal((await limit.check(request())).refused, true);
      await end(admission);
      await until(`the hold ends with ${end}`, free);
    }
  });

  test('has no limit where nothing is limited', async () => {
    const limit = rateLimit({ limiter: limiting(), policy: 'login', skip: () => true });
    const admission = await limit.check(request());
    const response = new Response('hello');
    assert.deepEqual([admission.refused, admission.decision], [false, undefined]);
    assert.equal(admission.respond(response), response);
    admission.end();
  });
});

describe('the address of a client', () => {
  const limited = (options) => rateLimit({ limiter: limiting(), policy: 'login', ...options });

  test('is never a guess from X-Forwarded-For', async () => {
    const networks = clientIp({ trustedProxies: ['10.0.0.0/8'] });
    for (const limit of [limited(), limited({ key: networks })]) {
      for (const host of [undefined, null, {}, { address: undefined }, { params: { id: 7 } }]) {
        await assert.rejects(limit.check(request({ 'x-forwarded-for': ADDRESS }), host), {
          code: 'key_invalid',
          message: /limit\.check\(request, \{ address \}\).*clientIp\(\{ trustedProxies: 1 \}\)/,
        });
      }
    }
    const key = clientIp({ trustedProxies: 1 });
    await assert.rejects(limited({ key }).check(request()), { code: 'key_invalid' });
  });

  test('comes from the host, and from the proxies that are configured', async () => {
    const requestIP = () => ({ address: ADDRESS });
    const bun = { requestIP, url: new URL('http://tidegate.test'), address: { address: '127.0.0.1', port: 80 } };
    const deno = { remoteAddr: { hostname: ADDRESS, transport: 'tcp' } };
    const node = { incoming: { socket: { remoteAddress: ADDRESS } } };
    const nuxt = { node: { req: node.incoming } };
    for (const host of [bun, deno, node, nuxt, { server: bun }, { info: deno }, { address: ADDRESS }]) {
      const { decision } = await limited().check(request({ 'x-forwarded-for': '198.51.100.1' }), host);
      assert.equal(decision.key, ADDRESS);
    }
    const hosted = {
      deno: { info: deno },
      bun: { server: bun },
      node: { req: { socket: { remoteAddress: ADDRESS } } },
    };
    for (const [name, host] of Object.entries(hosted)) {
      const { decision } = await limited().check(Object.assign(request(), { runtime: { name, [name]: host } }));
      assert.equal(decision.key, ADDRESS);
    }
    const forwarded = request({ 'x-forwarded-for': `198.51.100.1, ${ADDRESS}` });
    const { decision } = await limited({ key: clientIp({ trustedProxies: 1 }) }).check(forwarded);
    assert.equal(decision.key, ADDRESS);
    const proxy = { address: '10.0.0.7' };
    const through = await limited({ key: clientIp({ trustedProxies: ['10.0.0.0/8'] }) }).check(
      request({ 'x-forwarded-for': `198.51.100.1, ${ADDRESS}` }),
      proxy,
    );
    assert.equal(through.decision.key, ADDRESS);
  });

  test('is one for all behind a Unix domain socket', async () => {
    const limit = limited({ key: clientIp({ trustedProxies: ['unix'] }) });
    const forwarded = () => request({ 'x-forwarded-for': ADDRESS });
    for (const host of [
      { requestIP: () => null, url: new URL('unix:///run/app.sock') },
      { remoteAddr: { transport: 'unix', path: '/run/app.sock' } },
    ]) {
      assert.equal((await limit.check(forwarded(), host)).decision.key, ADDRESS);
    }
  });
});

describe('a handler with a limit', () => {
  const key = () => 'all';

  test('gets its arguments, and answers an upgrade by itself', async () => {
    const limiter = limiting({ exports: 'concurrency 1; 9/hour' });
    const limit = rateLimit({ limiter, policy: 'exports', key });
    const seen = [];
    const upgrade = { status: 101 };
    for (const answer of [undefined, upgrade]) {
      const handler = limit(async (request, ...rest) => {
        seen.push([request.rateLimit.policy, ...rest]);
        return answer;
      });
      assert.equal(await handler(request(), 1, 2), answer);
    }
    assert.deepEqual(seen, [
      ['exports', 1, 2],
      ['exports', 1, 2],
    ]);
    await until('no hold is left', async () => (await limiter.peek('exports', 'all')).limits[0].remaining === 1);
  });

  test('shares a notation only with the handlers of one limit', async () => {
    const limiter = limiting();
    const hello = () => new Response('hello');
    const options = { limiter, policy: 'fixed-window 2/minute', key };
    const limit = rateLimit(options);
    const [one, other] = [limit(hello), limit(hello)];
    const statuses = [];
    for (const handler of [one, other, one]) statuses.push((await handler(request())).status);
    assert.deepEqual(statuses, [200, 200, 429]);
    await assert.rejects(rateLimit(options)(hello)(request()), {
      code: 'config_invalid',
      message: /new Policy\('5\/minute', \{ name: 'login' \}\)/,
    });
    const named = new Policy('fixed-window 2/minute', { name: 'login' });
    assert.equal((await rateLimit({ ...options, policy: named })(hello)(request())).status, 200);
  });

  test('keeps cookies, and the fields of an answer to a refusal', async () => {
    const headers = [
      ['Set-Cookie', 'a=1'],
      ['Set-Cookie', 'b=2'],
    ];
    const onDenied = () => new Response('no', { headers });
    const limit = rateLimit({ limiter: limiting({ one: 'fixed-window 1/hour' }), policy: 'one', key, onDenied });
    const handler = limit(() => new Response('yes', { headers }));
    for (const status of [200, 429]) {
      const response = await handler(request());
      assert.equal(response.status, status);
      assert.deepEqual(response.headers.getSetCookie(), ['a=1', 'b=2']);
      assert.equal(response.headers.get('x-ratelimit-limit'), '1');
    }
  });
});

describe('frameworks', () => {
  /** The statuses of three requests to a limit of two. */
  async function admitsTwo(t, server) {
    const { url, close } = await listening(server);
    t.after(close);
    const answers = [];
    for (let sent = 0; sent < 3; sent++) answers.push(await get(`${url}/things`));
    assert.deepEqual(
      answers.map(({ status, body, headers }) => [status, status === 200 ? body : headers['retry-after']]),
      [
        [200, '1 left'],
        [200, '0 left'],
        [429, '3600'],
      ],
    );
    assert.equal(answers[0].headers['x-ratelimit-remaining'], '1');
  }

  const left = (request) => new Response(`${request.rateLimit.remaining} left`);

  test('h3 2', async (t) => {
    const limit = rateLimit({ limiter: limiting(), policy: 'login' });
    const app = new H3().get('/things', fromWebHandler(limit(left)));
    const server = serveH3(app, { port: 0, hostname: '127.0.0.1', silent: true, gracefulShutdown: false });
    await server.ready();
    await admitsTwo(t, server.node.server);
  });

  test('h3 2 in a bundle without the package', async (t) => {
    mkdirSync(join(root, '.cache'), { recursive: true });
    const folder = mkdtempSync(join(root, '.cache/bundle-'));
    t.after(() => rmSync(folder, { recursive: true }));
    const outfile = join(folder, 'server.mjs');
    const contents = `
      import { fromWebHandler, H3, serve } from 'h3';
      import { Limiter } from 'tidegate';
      import { rateLimit } from 'tidegate/web';
      const limit = rateLimit({ limiter: new Limiter(), policy: 'fixed-window 1/hour' });
      const app = new H3().get('/', fromWebHandler(limit(() => new Response('hello'))));
      const server = serve(app, { port: 0, hostname: '127.0.0.1', silent: true });
      await server.ready();
      console.log(server.url);`;
    const stdin = { contents, resolveDir: root };
    const options = { bundle: true, platform: 'node', format: 'esm', external: ['tidegate', 'tidegate/*'] };
    await build({ ...options, stdin, outfile, logLevel: 'error' });
    const url = await service(t, process.execPath, [outfile]);
    const statuses = [(await get(url)).status, (await get(url)).status];
    assert.deepEqual(statuses, [200, 429]);
  });

  test('Elysia', async (t) => {
    const things = rateLimit({ limiter: limiting(), policy: 'login' })(left);
    const app = new Elysia().get('/things', ({ request }) => things(request, { address: request.headers.get('peer') }));
    const fetch = (request, { incoming }) => {
      request.headers.set('peer', incoming.socket.remoteAddress);
      return app.fetch(request);
    };
    await admitsTwo(t, serve({ fetch, port: 0, hostname: '127.0.0.1' }));
  });

  test('node:http, without a framework', async (t) => {
    const things = rateLimit({ limiter: limiting(), policy: 'login' })(left);
    const server = createServer(async (incoming, outgoing) => {
      const response = await things(new Request(`http://tidegate.test${incoming.url}`), { incoming, outgoing });
      outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(await response.text());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    await admitsTwo(t, server);
  });
});

describe('two workers', () => {
  const [REQUESTS, LIMIT] = [5_000, 1_234];
  const policies = {
    counted: `fixed-window ${LIMIT}/hour`,
    free: 'fixed-window 1000/hour; concurrency 100',
    dear: 'fixed-window 1000/hour; concurrency 100',
  };

  async function load(t, store) {
    const script = fileURLToPath(new URL('served_web.mjs', import.meta.url));
    const words = [script, store, JSON.stringify(policies)];
    const urls = await Promise.all([0, 1].map(() => service(t, process.execPath, words)));
    const agent = new Agent({ keepAlive: true, maxSockets: 16 });
    t.after(() => agent.destroy());
    const send = (path, number) => get(`${urls[number % 2]}${path}`, { agent });
    const answers = await Promise.all(Array.from({ length: REQUESTS }, (_, number) => send('counted/plain', number)));
    const admitted = answers.filter(({ status }) => status === 200);
    assert.equal(admitted.length, LIMIT);
    const left = admitted.map(({ headers }) => Number(headers['x-ratelimit-remaining'])).sort((a, b) => a - b);
    assert.deepEqual(
      left,
      Array.from({ length: LIMIT }, (_, index) => index),
    );
    for (const { status, headers, body } of answers.filter(({ status }) => status !== 200)) {
      assert.equal(status, 429);
      assert.ok(Number(headers['retry-after']) > 3_000);
      assert.deepEqual(JSON.parse(body)['violated-policies'], ['counted']);
    }
    // Refunds, settlements, errors and clients that leave: what is consumed is exact, and no hold is left.
    const limiter = new Limiter({ store, policies, timeoutMs: 20_000 });
    t.after(() => limiter.close());
    const used = async (policy) =>
      (await limiter.peek(policy, '127.0.0.1')).limits.map((one) => one.limit - one.remaining);
    const many = (path) => Promise.all(Array.from({ length: 40 }, (_, number) => send(path, number)));
    // One charge that stays keeps the window open.
    assert.equal((await send('free/plain', 0)).status, 200);
    const statuses = new Set((await many('free/304')).map(({ status }) => status));
    assert.deepEqual([...statuses], [304]);
    await until('all are refunded', async () => String(await used('free')) === '1,0');
    await many('dear/dear');
    await until('all are settled', async () => String(await used('dear')) === '120,0');
    await many('free/throws');
    await until('errors end their holds', async () => String(await used('free')) === '41,0');
    const endless = await Promise.all(
      Array.from({ length: 40 }, (_, number) => open(`${urls[number % 2]}free/endless`)),
    );
    assert.deepEqual(await used('free'), [81, 40]);
    for (const answer of endless) answer.destroy();
    await until('clients that leave end their holds', async () => String(await used('free')) === '81,0');
  }

  onEachStore('admit exactly the limit', load);
});
