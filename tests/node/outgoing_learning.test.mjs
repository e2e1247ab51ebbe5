// Clients learn from the responses of real servers.

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Policy, RateLimited } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';
import { clients, limiterAt, opened, until, unwrapped } from './outgoing_clients.mjs';

for (const kind of clients) {
  suite(kind.name, () => {
    const { site, make } = opened(kind, { timeoutMs: 0 });
    const read = async (call) => (await call).text();
    /** The time that a call would have to wait. */
    const waitOf = async (call) => {
      const error = await call.then(
        () => assert.fail('it was sent'),
        (reason) => unwrapped(reason),
      );
      assert.ok(error instanceof RateLimited, String(error));
      return error.decision.retryAfterMs;
    };
    const near = (waitMs, expected) =>
      assert.ok(waitMs > expected - 2_000 && waitMs <= expected + 2_000, `${waitMs} ms are not about ${expected} ms`);

    for (const policy of [undefined, '1000/minute', 'concurrency 9; 1000/minute']) {
      test(`a limit that has nothing left is waited for, with the policy ${policy}`, async () => {
        const { origin, asked } = await site((_, response) => {
          response.setHeader('X-RateLimit-Limit', '5').setHeader('X-RateLimit-Remaining', '0');
          response.setHeader('X-RateLimit-Reset', '30').end('hello');
        });
        const { limiter, clock } = limiterAt();
        const { call } = make({ limiter, policy });
        assert.equal(await read(call(origin)), 'hello');
        near(await waitOf(call(origin)), 30_000);
        assert.equal(asked.length, 1);
        clock.advance(33_000);
        assert.equal(await read(call(origin)), 'hello');
      });

      test(`a refusal stops every call of its key, with the policy ${policy}`, async () => {
        const other = await site();
        const { origin, asked } = await site((_, response) =>
          response.writeHead(429, { 'Retry-After': '20' }).end('no'),
        );
        const { limiter } = limiterAt();
        const { call } = make({ limiter, policy });
        const refused = await call(origin);
        assert.deepEqual([refused.status, await refused.text()], [429, 'no']);
        near(await waitOf(call(origin)), 20_000);
        assert.equal(asked.length, 1);
        // This holds for another client with the same limiter, too, but not for another server.
        near(await waitOf(make({ limiter, policy }).call(origin)), 20_000);
        assert.equal(await read(call(other.origin)), 'hello');
      });
    }

    test('what all callers are told holds for every key', async () => {
      const other = await site();
      const { origin, asked } = await site((_, response) =>
        response.writeHead(429, { 'Retry-After': '20', 'X-RateLimit-Global': 'true' }).end('no'),
      );
      const { limiter } = limiterAt();
      assert.equal((await make({ limiter, policy: '1000/minute', key: 'one' }).call(origin)).status, 429);
      near(await waitOf(make({ limiter, policy: '1000/minute', key: 'two' }).call(origin)), 20_000);
      assert.equal(asked.length, 1);
      assert.equal(await read(make({ limiter, policy: '1000/minute', key: 'two' }).call(other.origin)), 'hello');
    });

    test('a call that comes late to its turn asks the application once', async () => {
      const { origin, asked } = await site();
      const { limiter, clock } = limiterAt();
      let keys = 0;
      const key = () => {
        keys += 1;
        return 'one';
      };
      const { call } = make({ limiter, policy: 'gcra 1/s burst 1', key, timeoutMs: 30_000 });
      const policy = limiter.policy('gcra 1/s burst 1').paced(50);
      assert.equal(await read(call(origin)), 'hello');
      const late = call(origin);
      await until(() => limiter.waiting(policy, 'out:one') === 1);
      // The turn comes and the service refuses before the event loop goes on.
      clock.advance(5_000);
      blockUntil(() => limiter.waiting(policy, 'out:one') === 0);
      const refused = limiter.observe(policy, 'out:one', { retryAfterMs: 60_000, scope: 'key' });
      near(await waitOf(late), 60_000);
      await refused;
      assert.deepEqual([keys, asked.length], [2, 1]);
    });

    test('what a body says is read, and stays readable', async () => {
      const said = '{"ok":false,"error_code":429,"parameters":{"retry_after":17}}';
      const { origin } = await site((_, response) => {
        response.writeHead(429, { 'Content-Type': 'application/json' }).end(said);
      });
      const { limiter } = limiterAt();
      const { call } = make({ limiter });
      assert.equal(await read(call(origin)), said);
      near(await waitOf(call(origin)), 17_000);
    });

    for (const status of [403, 429, 503]) {
      test(`a wait in the head of a ${status} is learned before its body ends`, async () => {
        const { origin, asked } = await site((_, response) => {
          response.writeHead(status, { 'Retry-After': '60', 'Content-Type': 'application/json' }).write('{');
        });
        const { limiter } = limiterAt();
        const { call } = make({ limiter, policy: '1000/minute' });
        const response = await call(origin);
        assert.equal(response.status, status);
        near(await waitOf(call(origin)), 60_000);
        assert.equal(asked.length, 1);
        await response.giveUp();
      });
    }

    test('a body that comes late is handed on', async () => {
      const open = [];
      const { origin, asked } = await site((_, response) => {
        response.writeHead(503, { 'Content-Type': 'application/json' }).write('{"retry_after":');
        open.push(response);
      });
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '1000/minute', retries: 1 });
      const response = await call(origin);
      assert.equal(response.status, 503);
      open[0].end(' 60}');
      assert.equal(await response.text(), '{"retry_after": 60}');
      assert.equal(asked.length, 1);
    });

    test('no wait is longer than it may be', async () => {
      const { origin } = await site((_, response) => response.writeHead(503, { 'Retry-After': '7200' }).end());
      const { limiter } = limiterAt();
      await read(make({ limiter, maxLearnedWaitMs: 10_000 }).call(origin));
      near(await waitOf(make({ limiter }).call(origin)), 10_000);
    });

    test('nothing is learned where it is not wanted', async () => {
      const { origin, asked } = await site((_, response) => response.writeHead(429, { 'Retry-After': '20' }).end());
      const { limiter } = limiterAt();
      const { call } = make({ limiter, policy: '9/minute', learn: false, retries: 1 });
      await read(call(origin, { method: 'POST' }));
      await read(call(origin, { method: 'POST' }));
      assert.equal(asked.length, 2);
    });

    test('a response speaks for its own origin: a redirect is of the server that sent it', async () => {
      const target = await site((_, response) => response.writeHead(429, { 'Retry-After': '20' }).end());
      const { origin, asked } = await site((_, response) => response.writeHead(302, { Location: target.origin }).end());
      const { limiter } = limiterAt();
      const { call } = make({ limiter });
      assert.equal((await call(origin)).status, 429);
      near(await waitOf(call(target.origin)), 20_000);
      // The first hop is sent again. The second one has to wait.
      near(await waitOf(call(origin)), 20_000);
      assert.deepEqual([asked.length, target.asked.length], [2, 1]);
    });

    test('a refusal is sent again when its wait is over', async () => {
      const { origin, asked } = await site((_, response, { asked }) => {
        if (asked.length === 1) response.writeHead(429, { 'Retry-After-Ms': '30' }).end('no');
        else response.end('at last');
      });
      const { limiter, clock } = limiterAt();
      const { call } = make({ limiter, policy: '1000/minute', retries: 1, timeoutMs: 60_000 });
      const answer = call(origin);
      // The limiter's clock stands still until the client asks again.
      await until(() => {
        clock.advance(5);
        return asked.length === 2;
      });
      assert.equal(await read(answer), 'at last');
    });

    test('a store that fails when the response is there is no error of the request', async () => {
      const { limiter } = limiterAt();
      const { origin } = await site(async (_, response) => {
        await limiter.close();
        response.writeHead(429, { 'Retry-After': '20', 'Content-Type': 'application/json' }).end('{"no":1}');
      });
      const response = await make({ limiter, policy: '9/minute', settle: () => 3 }).call(origin);
      assert.deepEqual([response.status, await response.text()], [429, '{"no":1}']);
    });
  });
}

for (const shares of [false, true]) {
  test(`a turn that is older than a refusal is given back; ${shares ? 'all callers are told' : 'of one key'}`, async () => {
    const { limiter, clock } = limiterAt();
    const sent = [];
    const fetch = pacedFetch({
      limiter,
      timeoutMs: 30_000,
      policy: 'gcra 1/s burst 1',
      key: ({ url }) => url,
      fetch: async (url) => {
        sent.push(url);
        return new Response('hello');
      },
    });
    const [policy, key] = [limiter.policy('gcra 1/s burst 1').paced(50), 'out:http://service/call'];
    assert.equal((await fetch('http://service/call')).status, 200);
    const late = fetch('http://service/call');
    await until(() => limiter.waiting(policy, key) === 1);
    clock.advance(5_000);
    blockUntil(() => limiter.waiting(policy, key) === 0);
    const [refuses, ofKey] = shares ? [Policy.learned(), 'out:http://service'] : [policy, key];
    const refused = limiter.observe(refuses, ofKey, { retryAfterMs: 60_000, scope: 'key' });
    await assert.rejects(late, RateLimited);
    await refused;
    assert.deepEqual(sent, ['http://service/call']);
    await limiter.unblock(policy, key);
    const { limits } = await limiter.peek(policy, key);
    assert.deepEqual(
      limits.map(({ limit, remaining }) => limit - remaining),
      [0],
    );
  });
}

/** Keeps the event loop from going on until another thread has done something. */
function blockUntil(holds) {
  const nothing = new Int32Array(new SharedArrayBuffer(4));
  const end = performance.now() + 30_000;
  while (!holds() && performance.now() < end) Atomics.wait(nothing, 0, 0, 1);
}
