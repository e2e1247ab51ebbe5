// `tidegate/undici` with features of undici alone: its interceptors, its other calls, and its way of taking a response.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createSecureServer } from 'node:http2';
import { Writable } from 'node:stream';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { paced } from 'tidegate/undici';
import { leftOf, limiterAt, Site, until } from './outgoing_clients.mjs';

const [major, minor] = process.versions.node.split('.').map(Number);
const versions = ['undici', ...(major > 22 || (major === 22 && minor >= 19) ? ['undici8'] : [])];

for (const version of versions) {
  describe(version, () => {
    let undici;
    let site;
    let other;
    const agents = [];
    const agent = (options, ...more) => {
      const made = new undici.Agent();
      agents.push(made);
      return made.compose(paced(options), ...more);
    };
    before(async () => {
      undici = await import(version);
      other = await Site.start();
      site = await Site.start((request, response, { asked }) => {
        const [, name] = request.url.split('/');
        if (name === 'early') response.writeEarlyHints({ link: '</a.css>; rel=preload' });
        if (name === 'trailers') {
          response.writeHead(200, { Trailer: 'x-sum' });
          response.write('hello');
          response.addTrailers({ 'X-Sum': '5' });
          return response.end();
        }
        if (name === 'zipped') return response.setHeader('Content-Encoding', 'gzip').end(gzipSync('hello'));
        if (name === 'large') return response.end(Buffer.alloc(2_000_000, 'a'));
        if (name === 'busy') {
          const isBusy = asked.filter((line) => line.endsWith('/busy')).length < 2;
          return response.writeHead(isBusy ? 503 : 200, { 'Retry-After': '0', 'X-Two': ['a', 'b'] }).end('{}');
        }
        response.end('hello');
      });
      site.server.on('upgrade', (_, socket) => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
        socket.pipe(socket);
      });
      site.server.on('connect', (_, socket) => {
        socket.write('HTTP/1.1 200 Connected\r\n\r\n');
        socket.pipe(socket);
      });
    });
    after(async () => {
      for (const one of agents) await one.destroy();
      await Promise.all([site.close(), other.close()]);
    });
    const remaining = async (limiter, policy, { origin } = site) => leftOf(limiter, policy, `out:${origin}`);

    it('streams, pipelines and fetch are paced, too', async () => {
      const { limiter } = limiterAt();
      const policy = '3/minute';
      const dispatcher = agent({ limiter, policy, timeoutMs: 0 });
      let body = '';
      const sink = new Writable({
        write(chunk, _, done) {
          body += chunk;
          done();
        },
      });
      await undici.stream(`${site.origin}/`, { dispatcher }, () => sink);
      assert.equal(body, 'hello');
      const pipeline = undici.pipeline(`${site.origin}/`, { dispatcher, method: 'GET' }, ({ body }) => body);
      assert.equal(await pipeline.end().toArray().then(String), 'hello');
      assert.equal(await (await undici.fetch(`${site.origin}/`, { dispatcher })).text(), 'hello');
      assert.deepEqual(await remaining(limiter, policy), [0]);
      await assert.rejects(undici.fetch(`${site.origin}/`, { dispatcher }), (error) => {
        return error.cause.code === 'rate_limited';
      });
      await assert.rejects(undici.request(`${site.origin}/`, { dispatcher }), { code: 'rate_limited' });
      const respond = agent({ limiter, policy, timeoutMs: 0, respond: true });
      const refused = await undici.fetch(`${site.origin}/`, { dispatcher: respond });
      assert.deepEqual([refused.status, refused.headers.get('x-should-retry')], [429, 'false']);
      const raw = await undici.request(`${site.origin}/`, { dispatcher: respond, responseHeaders: 'raw' });
      assert.equal(raw.statusCode, 429);
      assert.match(await raw.body.text(), /"status":\s*429/);
    });

    it('redirects of its fetch are calls', async () => {
      const { limiter } = limiterAt();
      const first = await Site.start((_, response) => response.writeHead(302, { Location: other.origin }).end());
      try {
        const dispatcher = agent({ limiter, policy: '5/minute' });
        assert.equal(await (await undici.fetch(first.origin, { dispatcher })).text(), 'hello');
        assert.deepEqual(await remaining(limiter, '5/minute', first), [4]);
        assert.deepEqual(await remaining(limiter, '5/minute', other), [4]);
      } finally {
        await first.close();
      }
    });

    it('what else comes with a response arrives: early hints, trailers, raw headers, a body in its time', async () => {
      const { limiter } = limiterAt();
      const dispatcher = agent({ limiter, policy: '100/minute' });
      const infos = [];
      const onInfo = ({ statusCode }) => infos.push(statusCode);
      await (await undici.request(`${site.origin}/early`, { dispatcher, onInfo })).body.text();
      assert.deepEqual(infos, [103]);
      const { body, trailers } = await undici.request(`${site.origin}/trailers`, { dispatcher });
      assert.deepEqual([await body.text(), { ...trailers }], ['hello', { 'x-sum': '5' }]);
      const raw = await undici.request(`${site.origin}/raw`, { dispatcher, responseHeaders: 'raw' });
      assert.ok(raw.headers.map(String).some((name) => /^content-length$/i.test(name)));
      await raw.body.dump();
      const head = await undici.request(`${site.origin}/`, { dispatcher, method: 'HEAD' });
      assert.equal(await head.body.text(), '');
      const large = await undici.request(`${site.origin}/large`, { dispatcher });
      let length = 0;
      for await (const chunk of large.body) {
        length += chunk.length;
        // The reader is slow, but nothing is lost, and nothing comes twice.
        await new Promise(setImmediate);
      }
      assert.equal(length, 2_000_000);
    });

    it('a request that is given up while it connects is not sent, and gives its units back', async () => {
      const { limiter } = limiterAt();
      const connects = [];
      const connector = undici.buildConnector({});
      const connecting = new undici.Agent({ connect: (...given) => connects.push(() => connector(...given)) });
      agents.push(connecting);
      const policy = 'concurrency 1; 5/minute';
      const dispatcher = connecting.compose(paced({ limiter, policy }));
      const controller = new AbortController();
      const sent = site.asked.length;
      const reason = new Error('the user left');
      const request = undici.request(site.origin, { dispatcher, signal: controller.signal });
      await until(() => connects.length === 1);
      assert.deepEqual(await remaining(limiter, policy), [0, 4]);
      controller.abort(reason);
      connects[0]();
      await assert.rejects(request, reason);
      assert.deepEqual(await remaining(limiter, policy), [1, 5]);
      assert.equal(site.asked.length, sent);
    });

    it('interceptors behind it make paced calls; what they throw ends their request', async () => {
      const { limiter } = limiterAt();
      const policy = '100/minute';
      const retry = undici.interceptors.retry({ maxRetries: 3, minTimeout: 1, throwOnError: false });
      const again = agent({ limiter, policy }, retry);
      const answer = await undici.request(`${site.origin}/busy`, { dispatcher: again });
      assert.deepEqual([answer.statusCode, answer.headers['x-two']], [200, ['a', 'b']]);
      await answer.body.dump();
      assert.deepEqual(await remaining(limiter, policy), [98]);
      const failing = agent({ limiter, policy: 'concurrency 1' }, undici.interceptors.responseError());
      const missing = await Site.start((_, response) => response.writeHead(404).end('{"no":1}'));
      try {
        await assert.rejects(undici.request(missing.origin, { dispatcher: failing }), { statusCode: 404 });
        await until(async () => (await remaining(limiter, 'concurrency 1', missing))[0] === 1);
      } finally {
        await missing.close();
      }
      const small = agent({ limiter, policy: 'concurrency 1' }, undici.interceptors.dump({ maxSize: 10 }));
      await assert.rejects(undici.request(`${site.origin}/large`, { dispatcher: small }), /larger than maxSize/);
      await until(async () => (await remaining(limiter, 'concurrency 1'))[0] === 1);
    });

    it('settle reads what decompress has undone, and nothing of what is encoded', async () => {
      const { limiter } = limiterAt();
      const read = [];
      const settle = () => ({ feed: (chunk) => read.push(String(chunk)), end: () => 1 });
      const options = { limiter, policy: '100/minute', settle };
      const plain = new undici.Agent();
      agents.push(plain);
      const decompressed = plain.compose(undici.interceptors.decompress(), paced(options));
      const url = `${site.origin}/zipped`;
      assert.equal(await (await undici.request(url, { dispatcher: decompressed })).body.text(), 'hello');
      assert.equal(read.join(''), 'hello');
      const { body } = await undici.request(url, { dispatcher: agent(options) });
      assert.deepEqual(Buffer.from(await body.arrayBuffer()), gzipSync('hello'));
      assert.equal(read.join(''), 'hello');
    });

    it('a connection that is upgraded is held until it closes', async () => {
      const { limiter } = limiterAt();
      const policy = 'concurrency 1; 5/minute';
      const client = agent({ limiter, policy });
      const options = [
        () => client.upgrade({ origin: site.origin, path: '/', protocol: 'echo' }),
        () => client.connect({ origin: site.origin, path: 'example.com:443' }),
      ];
      for (const [index, open] of options.entries()) {
        const { socket } = await open();
        assert.deepEqual(await remaining(limiter, policy), [0, 4 - index]);
        socket.write('echo');
        assert.equal(String((await once(socket, 'data'))[0]), 'echo');
        socket.destroy();
        await until(async () => (await remaining(limiter, policy))[0] === 1);
      }
    });

    it('over HTTP/2', async () => {
      const server = createSecureServer((request, response) => response.end(request.httpVersion));
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const origin = `http://127.0.0.1:${server.address().port}`;
      const client = new undici.H2CClient(origin);
      try {
        const { limiter } = limiterAt();
        const key = origin;
        const dispatcher = client.compose(paced({ limiter, policy: '100/minute', key, settle: () => 2 }));
        const texts = Array.from({ length: 5 }, async () => {
          return (await dispatcher.request({ path: '/', method: 'GET' })).body.text();
        });
        assert.deepEqual(await Promise.all(texts), Array(5).fill('2.0'));
        await until(async () => (await remaining(limiter, '100/minute', { origin }))[0] === 90);
      } finally {
        await client.destroy();
        server.close();
      }
    });

    it('of one client whose requests name no origin', async () => {
      const { limiter } = limiterAt();
      const options = { limiter, policy: '5/minute', prefix: '' };
      const client = new undici.Client(site.origin);
      agents.push(client);
      const request = { path: '/', method: 'GET' };
      const keyed = await client.compose(paced({ ...options, key: 'mine' })).request(request);
      assert.equal(await keyed.body.text(), 'hello');
      assert.deepEqual(await leftOf(limiter, '5/minute', 'mine'), [4]);
      // undici 8 passes its origin.
      const unkeyed = client.compose(paced(options)).request(request);
      if (version === 'undici8') await (await unkeyed).body.dump();
      else
        await assert.rejects(
          unkeyed,
          /tidegate\/undici: the request names no origin: give one with it, or the option key/,
        );
      await assert.rejects(client.compose(paced({ ...options, key: 'mine' })).request({ path: 5, method: 'GET' }));
      // undici refused it before it was sent.
      assert.deepEqual(await leftOf(limiter, '5/minute', 'mine'), [4]);
    });
  });
}
