// Calls that go out, the same for every client: real clients, real servers.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { suite, test } from 'node:test';
import { Decision, Policy, RateLimited } from 'tidegate';
import { clients, leftOf, limiterAt, opened, until, unwrapped, waitingOf } from './outgoing_clients.mjs';

/** Longer than the windows of calls that go out. */
const MINUTE = 90_000;

for (const kind of clients) {
  suite(kind.name, () => {
    const { site, make } = opened(kind);
    const keyOf = ({ origin }) => `out:${origin}`;
    const left = async (limiter, policy, key, cost = 1) => Math.min(...(await leftOf(limiter, policy, key, cost)));

    test('a request waits for its turn, and onWait says how long', async () => {
      const { origin, asked } = await site();
      const { limiter, clock } = limiterAt();
      const waits = [];
      const policy = 'fixed-window 1/minute';
      const { call } = make({ limiter, policy, onWait: (...given) => waits.push(given), timeoutMs: Infinity });
      assert.equal(await (await call(`${origin}/1`)).text(), 'hello');
      const second = call(`${origin}/2`);
      await until(() => waitingOf(limiter, policy, `out:${origin}`) === 1);
      assert.deepEqual(asked, ['GET /1']);
      const [[decision, waitMs]] = waits;
      assert.ok(decision instanceof Decision && !decision.allowed);
      assert.ok(waitMs > 0 && waitMs <= MINUTE && waitMs === decision.retryAfterMs);
      clock.advance(MINUTE);
      assert.equal(await (await second).text(), 'hello');
      assert.deepEqual([asked.length, waits.length], [2, 1]);
      assert.deepEqual(
        Object.values(limiter.stats().policies).map(({ allowed }) => allowed),
        [2],
      );
    });

    test('a wait beyond the timeout is RateLimited, before anything is sent', async () => {
      const { origin, asked } = await site();
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '1/minute', timeoutMs: 0 });
      await (await call(origin)).text();
      await assert.rejects(call(origin), (error) => {
        const { decision } = unwrapped(error);
        assert.ok(unwrapped(error) instanceof RateLimited);
        return decision.key === `out:${origin}` && decision.retryAfterMs > 0;
      });
      assert.equal(asked.length, 1);
    });

    test('a refusal becomes a response where that is asked for', async () => {
      const { origin, asked } = await site();
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: 'fixed-window 1/minute', timeoutMs: 0, respond: true });
      await (await call(origin)).text();
      const response = await call(origin);
      assert.deepEqual(
        [response.status, response.header('x-should-retry'), response.header('content-type')],
        [429, 'false', 'application/problem+json'],
      );
      const wait = Number(response.header('retry-after'));
      assert.ok(wait >= 1 && wait <= 66);
      const problem = JSON.parse(await response.text());
      assert.equal(problem.status, 429);
      const big = make({ limiter, policy: '5/minute', cost: 6, respond: true });
      const misfit = await big.call(origin);
      assert.deepEqual([misfit.status, misfit.header('x-should-retry')], [413, 'false']);
      assert.match(JSON.parse(await misfit.text()).detail, /never admits a call of 6 units/);
      assert.equal(asked.length, 1);
    });

    test('a cost that never fits is an error that says so', async () => {
      const { origin, asked } = await site();
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '5/minute', cost: () => 6 });
      await assert.rejects(call(origin), (error) => unwrapped(error).code === 'cost_invalid');
      assert.equal(asked.length, 0);
    });

    test('giving up while it waits rejects with the reason, and gives the turn back', async () => {
      const { origin, asked } = await site();
      const { limiter, clock } = limiterAt();
      const policy = 'fixed-window 1/minute';
      const { call } = make({ limiter, policy, timeoutMs: Infinity });
      await (await call(origin)).text();
      const controller = new AbortController();
      const reason = new Error('the user left');
      const waiting = call(origin, { signal: controller.signal });
      await until(() => waitingOf(limiter, policy, `out:${origin}`) === 1);
      controller.abort(reason);
      await assert.rejects(waiting, (error) => error === reason || error.code === 'ERR_CANCELED');
      await until(() => waitingOf(limiter, policy, `out:${origin}`) === 0);
      clock.advance(MINUTE);
      await (await call(origin)).text();
      assert.equal(asked.length, 2);
      await assert.rejects(call(origin, { signal: AbortSignal.abort(reason) }));
      assert.equal(asked.length, 2);
    });

    test('a connection that is never made gives its units back; one that breaks does not', async () => {
      const gone = await site();
      await gone.close();
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '5/minute' });
      await assert.rejects(call(gone.origin));
      assert.equal(await left(limiter, '5/minute', keyOf(gone)), 5);
      await assert.rejects(call('http://nowhere.invalid/'));
      assert.equal(await left(limiter, '5/minute', 'out:http://nowhere.invalid'), 5);
      const breaking = await site((request) => request.socket.destroy());
      await assert.rejects(call(breaking.origin));
      assert.equal(await left(limiter, '5/minute', keyOf(breaking)), 4);
      assert.equal(breaking.asked.length, 1);
    });

    test('what is held goes back when the connection is never made', async () => {
      const gone = await site();
      await gone.close();
      const { limiter } = limiterAt();
      const policy = 'concurrency 1; 5/minute';
      const { call } = make({ limiter, policy });
      await assert.rejects(call(gone.origin));
      assert.deepEqual(await leftOf(limiter, policy, keyOf(gone)), [1, 5]);
    });

    test('a stream stays one, and holds until it has ended or is given up', async () => {
      const parts = [];
      const { origin } = await site((_, response) => {
        response.write('one');
        parts.push(response);
      });
      const { limiter } = limiterAt();
      const policy = 'concurrency 1';
      const { call } = make({ limiter, policy });
      const key = `out:${origin}`;
      const response = await call(origin);
      const chunks = response.chunks();
      assert.equal(Buffer.from((await chunks.next()).value).toString(), 'one');
      assert.equal(await left(limiter, policy, key), 0);
      parts[0].write('two');
      assert.equal(Buffer.from((await chunks.next()).value).toString(), 'two');
      parts[0].end();
      assert.equal((await chunks.next()).done, true);
      await until(async () => (await left(limiter, policy, key)) === 1);
      const second = await call(origin);
      assert.equal(await left(limiter, policy, key), 0);
      await second.giveUp();
      await until(async () => (await left(limiter, policy, key)) === 1);
      // A response that breaks off has ended, too.
      const third = await call(origin);
      parts[2].socket.destroy();
      await assert.rejects(third.text());
      await until(async () => (await left(limiter, policy, key)) === 1);
    });

    test('a request that is aborted behind its head gives back what it holds', async () => {
      const { origin } = await site((_, response) => response.write('one'));
      const { limiter } = limiterAt();
      const policy = 'concurrency 1';
      const { call } = make({ limiter, policy });
      const controller = new AbortController();
      const response = await call(origin, { signal: controller.signal });
      assert.equal(await left(limiter, policy, `out:${origin}`), 0);
      controller.abort(new Error('the user left'));
      await until(async () => (await left(limiter, policy, `out:${origin}`)) === 1);
      // The body was not read yet. Reading it fails now.
      await assert.rejects(response.text());
    });

    test('a hold that nothing waits for is RateLimited', async () => {
      const { origin } = await site((_, response) => response.write('one'));
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: 'concurrency 1', timeoutMs: 0 });
      const first = await call(origin);
      await assert.rejects(call(origin), (error) => unwrapped(error) instanceof RateLimited);
      await first.giveUp();
    });

    test('settle says what a call has cost, once its body has ended', async () => {
      const ends = [];
      const { origin } = await site((_, response) => {
        response.setHeader('x-cost', '3').write('hel');
        ends.push(() => response.end('lo'));
      });
      const { limiter } = limiterAt();
      const seen = [];
      const settle = (response, request) => {
        seen.push([response.status, request]);
        return Number(response.headers.get('x-cost'));
      };
      const cost = (request) => {
        seen.push(request);
        return 10;
      };
      const { call } = make({ limiter, policy: '100/minute', cost, settle });
      const response = await call(`${origin}/a?b=1`, { method: 'POST', body: '{"max":7}', headers: { 'X-A': 'b' } });
      assert.equal(await left(limiter, '100/minute', `out:${origin}`), 90);
      ends[0]();
      assert.equal(await response.text(), 'hello');
      await until(async () => (await left(limiter, '100/minute', `out:${origin}`)) === 97);
      const [asked, [status, settled]] = seen;
      assert.equal(asked, settled);
      const { method, url, headers, body } = asked;
      assert.deepEqual([status, method, url, headers.get('x-a')], [200, 'POST', `${origin}/a?b=1`, 'b']);
      assert.equal(String(body), '{"max":7}');
    });

    test('settle reads the body while the caller does', async () => {
      const { origin } = await site((request, response) => {
        response.write('some');
        if (request.url === '/whole') response.end('thing');
      });
      const { limiter } = limiterAt();
      const read = [];
      const settle = () => {
        let body = '';
        return {
          feed: (chunk) => {
            body += Buffer.from(chunk).toString();
          },
          end: () => {
            read.push(body);
            return body === 'something' ? { tokens: 9 } : undefined;
          },
        };
      };
      const policy = '100 tokens/minute';
      const tokens = { tokens: 1 };
      const { call } = make({ limiter, policy, cost: { tokens: 50 }, settle });
      assert.equal(await (await call(`${origin}/whole`)).text(), 'something');
      await until(async () => (await left(limiter, policy, `out:${origin}`, tokens)) === 91);
      const second = await call(`${origin}/part`);
      const chunks = second.chunks();
      await chunks.next();
      await second.giveUp().catch?.(() => chunks.return());
      await until(() => read.length === 2);
      assert.deepEqual(read, ['something', 'some']);
      assert.equal(await left(limiter, policy, `out:${origin}`, tokens), 41);
    });

    test('the body of a refusal stays readable, a long one too', async () => {
      const bodies = { '/short': '{"message":"no"}', '/long': JSON.stringify({ message: 'x'.repeat(300_000) }) };
      const { origin } = await site((request, response) => {
        response.writeHead(Number(request.headers['x-status']), { 'Content-Type': 'application/json; charset=utf-8' });
        response.end(bodies[request.url]);
      });
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '100/minute', learn: true });
      for (const status of [403, 503]) {
        for (const [path, body] of Object.entries(bodies)) {
          const response = await call(origin + path, { headers: { 'x-status': String(status) } });
          assert.equal(response.status, status);
          assert.equal(await response.text(), body);
        }
      }
    });

    test('policy, key, cost and priority may be functions of the request, and the prefix is yours', async () => {
      const { origin } = await site();
      const { limiter } = limiterAt();
      const batch = new Policy('100/minute', { name: 'batch', priorities: { low: '50%' } });
      const client = make({
        limiter,
        policy: ({ url }) => (url.endsWith('/free') ? undefined : batch),
        key: ({ headers }) => headers.get('x-tenant'),
        cost: ({ body }) => Number(body ?? 1),
        priority: ({ method }) => (method === 'PUT' ? 'low' : undefined),
        prefix: 'mine:',
        timeoutMs: 0,
      });
      const init = { method: 'POST', headers: { 'X-Tenant': 'a' } };
      await (await client.call(origin, { ...init, body: '40' })).text();
      assert.equal(await left(limiter, batch, 'mine:a'), 60);
      await (await client.call(`${origin}/free`, { ...init, body: '40' })).text();
      assert.equal(await left(limiter, batch, 'mine:a'), 60);
      const denied = client.call(origin, { ...init, method: 'PUT', body: '20' });
      await assert.rejects(denied, (error) => unwrapped(error) instanceof RateLimited);
      await (await client.call(origin, { ...init, body: '20' })).text();
      assert.equal(await left(limiter, batch, 'mine:a'), 40);
      await assert.rejects(client.call(origin, { method: 'GET' }), (error) => unwrapped(error).code === 'key_invalid');
    });

    suite('sends again', () => {
      /** A server that refuses the first `times` requests. */
      const refusing = (times, status = 429, wait = '5') =>
        site((_, response, { asked }) => {
          if (asked.length > times) return response.end('at last');
          response.writeHead(status, { 'Retry-After-Ms': wait, 'Content-Type': 'application/json' });
          response.end('{"not":"yet"}');
        });
      const stream = () => new Blob(['text']).stream();
      const cases = [
        ['a GET', {}, 2],
        ['a DELETE', { method: 'DELETE' }, 2],
        ['a PUT of text', { method: 'PUT', body: 'text' }, 2],
        ['a PUT of bytes', { method: 'PUT', body: Buffer.from('text') }, 2],
        ['a POST', { method: 'POST', body: 'text' }, 1],
        ['a PATCH', { method: 'PATCH', body: 'text' }, 1],
        ['a POST with an Idempotency-Key', { method: 'POST', body: 'text', headers: { 'Idempotency-Key': '1' } }, 2],
        ['a PUT of a stream', { method: 'PUT', body: stream, duplex: 'half' }, 1],
      ];
      for (const [name, { body, ...init }, times] of cases) {
        test(`${times === 2 ? '' : 'not '}${name}`, async () => {
          const { origin, requests, asked } = await refusing(1);
          const { limiter } = limiterAt();
          const { call } = make({ limiter, policy: '100/minute', retries: 2, learn: false });
          const sent = body === undefined ? init : { ...init, body: typeof body === 'function' ? body() : body };
          const response = await call(origin, sent);
          assert.equal(response.status, times === 2 ? 200 : 429);
          assert.equal(await response.text(), times === 2 ? 'at last' : '{"not":"yet"}');
          assert.equal(asked.length, times);
          for (const request of requests) assert.equal(request.body, body === undefined ? '' : 'text');
          // Each attempt is a call.
          assert.equal(await left(limiter, '100/minute', `out:${origin}`), 100 - times);
        });
      }

      test('as often as it may, and only what names a wait', async () => {
        const { limiter } = limiterAt();
        const options = { limiter, policy: '100/minute', learn: false };
        const twice = await refusing(9);
        const { call } = make({ ...options, retries: 2 });
        assert.equal((await call(twice.origin)).status, 429);
        assert.equal(twice.asked.length, 3);
        const once = await refusing(9);
        assert.equal((await make(options).call(once.origin)).status, 429);
        assert.equal(once.asked.length, 1);
        const busy = await refusing(1, 503);
        assert.equal((await call(busy.origin)).status, 200);
        const broken = await site((_, response) => response.writeHead(503).end());
        assert.equal((await call(broken.origin)).status, 503);
        assert.equal(broken.asked.length, 1);
      });

      test('not what has to wait longer than the timeout leaves', async () => {
        const { origin, asked } = await refusing(1, 429, '5000');
        const { limiter } = limiterAt();
        const { call } = make({ limiter, policy: '100/minute', retries: 2, learn: false, timeoutMs: 1_000 });
        const response = await call(origin);
        assert.deepEqual([response.status, await response.text(), asked.length], [429, '{"not":"yet"}', 1]);
      });

      test('not what is given up in between', async () => {
        const { origin, asked } = await refusing(1, 429, '600000');
        const { limiter } = limiterAt();
        const policy = 'concurrency 1';
        const { call } = make({ limiter, policy, retries: 2, learn: false, timeoutMs: Infinity });
        const controller = new AbortController();
        const waiting = call(origin, { signal: controller.signal });
        await until(() => asked.length === 1);
        await until(async () => (await left(limiter, policy, `out:${origin}`)) === 1);
        controller.abort(new Error('the user left'));
        await assert.rejects(waiting);
        assert.equal(asked.length, 1);
      });
    });

    test('each redirect waits, and is charged under its own origin', async () => {
      const target = await site();
      const { origin } = await site((_, response) =>
        response.writeHead(302, { Location: `${target.origin}/there` }).end(),
      );
      const { limiter, clock } = limiterAt();
      const policy = 'fixed-window 1/minute';
      const { call } = make({ limiter, policy, timeoutMs: Infinity });
      const headers = { Authorization: 'secret', Cookie: 'a=b', 'X-Kept': 'c' };
      const response = await call(`${origin}/here`, { headers });
      assert.equal(await response.text(), 'hello');
      if (response.url !== undefined) assert.equal(response.url, `${target.origin}/there`);
      assert.equal(await left(limiter, policy, `out:${origin}`), 0);
      assert.equal(await left(limiter, policy, `out:${target.origin}`), 0);
      const { authorization, cookie, 'x-kept': kept } = target.requests[0].headers;
      assert.deepEqual([authorization, cookie, kept], [undefined, undefined, 'c']);
      await limiter.clear(limiter.policy(policy).paced(), `out:${origin}`);
      const second = call(`${origin}/here`);
      await until(() => waitingOf(limiter, policy, `out:${target.origin}`) === 1);
      assert.equal(target.asked.length, 1);
      clock.advance(MINUTE);
      assert.equal(await (await second).text(), 'hello');
    });

    for (const key of ['account', () => 'account']) {
      test(`a key is that of the origin that was asked, as a ${typeof key}`, async () => {
        const target = await site(({ url }, response) => {
          if (url === '/back') response.writeHead(302, { Location: `${first.origin}/end` }).end();
          else response.writeHead(429, { 'Retry-After': '60' }).end('no');
        });
        const first = await site(({ url }, response) => {
          if (url === '/end') response.end('hello');
          else response.writeHead(302, { Location: `${target.origin}${url}` }).end();
        });
        const { limiter } = limiterAt();
        const policy = '10/minute';
        const { call } = make({ limiter, policy, key });
        assert.equal(await (await call(`${first.origin}/back`)).text(), 'hello');
        assert.equal(await left(limiter, policy, 'out:account'), 8);
        assert.equal(await left(limiter, policy, `out:${target.origin}`), 9);
        assert.equal((await call(`${first.origin}/refused`)).status, 429);
        assert.equal(await (await call(`${first.origin}/end`)).text(), 'hello');
        await assert.rejects(call(`${first.origin}/refused`), (error) => unwrapped(error) instanceof RateLimited);
        assert.equal(target.asked.length, 2);
        assert.equal(await left(limiter, policy, 'out:account'), 5);
      });
    }

    test('a server that never answers is given up by the caller', async () => {
      const silent = createServer().listen(0, '127.0.0.1');
      await once(silent, 'listening');
      try {
        const { limiter } = limiterAt();
        const policy = 'concurrency 1; 5/minute';
        const { call } = make({ limiter, policy });
        const origin = `http://127.0.0.1:${silent.address().port}`;
        const controller = new AbortController();
        const connected = once(silent, 'connection');
        const waiting = call(origin, { signal: controller.signal });
        const [socket] = await connected;
        await once(socket, 'data');
        controller.abort();
        await assert.rejects(waiting);
        // The request may have arrived, so its charge stays, and its hold goes back.
        const limits = await leftOf(limiter, policy, `out:${origin}`);
        assert.deepEqual(limits, [1, 4]);
        socket.destroy();
      } finally {
        silent.close();
      }
    });
  });
}
