// What every adapter does, over real HTTP.

import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, test } from 'node:test';
import { parseList } from 'structured-headers';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { adapters } from './adapters.mjs';
import { get, open, send, until } from './client.mjs';

const START = 1_704_067_200_000;

/** A limiter of its own with a clock that is moved by hand. */
function limiting(policies = {}, options = {}) {
  const clock = new ManualClock(START);
  return { clock, limiter: new Limiter({ policies, clock, ...options }) };
}

/** Items of a field by name, as an independent parser reads them. */
function items(field) {
  return Object.fromEntries(parseList(field).map(([name, parameters]) => [name, Object.fromEntries(parameters)]));
}

const hello = async () => ({ body: 'hello' });

/** A body whose second half comes when it is let go. */
function halves() {
  let letGo;
  const rest = new Promise((resolve) => {
    letGo = resolve;
  });
  async function* body() {
    yield 'first ';
    await rest;
    yield 'second';
  }
  return { body: Readable.from(body(), { objectMode: false }), letGo };
}

for (const { name, adapter, start, trust } of adapters) {
  /** Runs a server for one test. */
  async function serving(t, description) {
    const server = await start({ handler: hello, limits: [], ...description });
    t.after(() => server.close());
    return server.url;
  }

  /** A server whose first request is expected to fail, and the error. */
  async function failing(t, description) {
    const failures = [];
    try {
      const url = await serving(t, { ...description, failed: (error) => failures.push(error) });
      const { status } = await get(url, description.request);
      if (failures.length > 0) assert.equal(status, 500);
    } catch (error) {
      failures.push(error);
    }
    return failures[0];
  }

  describe(name, () => {
    test('exactly the limit is admitted, and a refusal is a problem', async (t) => {
      const { limiter } = limiting({ login: 'fixed-window 3/minute' });
      const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
      const answers = await Promise.all(Array.from({ length: 10 }, () => get(url)));
      assert.equal(answers.filter(({ status, body }) => status === 200 && body === 'hello').length, 3);
      const refusals = answers.filter(({ status }) => status === 429);
      assert.equal(refusals.length, 7);
      for (const { headers, body } of refusals) {
        assert.equal(headers['content-type'], 'application/problem+json');
        assert.equal(headers['retry-after'], '60');
        assert.deepEqual(JSON.parse(body), {
          type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
          title: 'Request cannot be satisfied as assigned quota has been exceeded',
          status: 429,
          detail: 'Try again in 60 seconds.',
          'violated-policies': ['login'],
        });
      }
    });

    test('every answer says where the client stands', async (t) => {
      const { limiter } = limiting({ login: 'gcra 20/minute' });
      const handler = async ({ url }) => {
        if (url === '/error') throw new Error('on purpose');
        return { status: url === '/missing' ? 404 : 200, body: 'hello' };
      };
      const url = await serving(t, { limits: [{ limiter, policy: 'login' }], handler });
      const expected = [
        ['/', 200, 19, 3],
        ['/missing', 404, 18, 6],
        ['/error', 500, 17, 9],
      ];
      for (const [path, wanted, left, wait] of expected) {
        const { status, headers } = await get(url + path);
        assert.equal(status, wanted);
        assert.deepEqual(items(headers['ratelimit-policy']), { login: { q: 20, w: 60 } });
        assert.deepEqual(items(headers['ratelimit']), { login: { r: left, t: wait } });
        assert.equal(headers['x-ratelimit-limit'], '20');
        assert.equal(headers['x-ratelimit-remaining'], String(left));
        assert.equal(headers['x-ratelimit-reset'], String(START / 1000 + wait));
        assert.equal(headers['retry-after'], undefined);
      }
    });

    test('what a refusal promises is true, and not earlier', async (t) => {
      const { limiter, clock } = limiting({ login: 'sliding-log 2/minute; fixed-window 5/hour' });
      const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
      await get(url);
      clock.advance(10_500);
      await get(url);
      const { status, headers } = await get(url);
      assert.equal(status, 429);
      const wait = Number(headers['retry-after']);
      assert.equal(wait, 50);
      assert.equal(items(headers['ratelimit']).login.t, wait);
      clock.advance((wait - 1) * 1000);
      assert.equal((await get(url)).status, 429);
      clock.advance(1000);
      assert.equal((await get(url)).status, 200);
    });

    test('a cost that never fits is refused without a time', async (t) => {
      const { limiter } = limiting({ login: '5/minute' });
      const url = await serving(t, { limits: [{ limiter, policy: 'login', cost: 6 }] });
      const { status, headers, body } = await get(url);
      assert.equal(status, 429);
      assert.equal(headers['retry-after'], undefined);
      assert.match(JSON.parse(body).detail, /more than is ever allowed/);
    });

    test('the fields are chosen', async (t) => {
      const of = {
        both: ['ratelimit', 'ratelimit-policy', 'x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'],
        ietf: ['ratelimit', 'ratelimit-policy'],
        legacy: ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset'],
        off: [],
      };
      for (const [choice, fields] of Object.entries(of)) {
        const { limiter } = limiting({ login: '1/minute' });
        const url = await serving(t, { limits: [{ limiter, policy: 'login', headers: choice }] });
        const said = async () =>
          Object.keys((await get(url)).headers).filter((field) => field.includes('rate') || field === 'retry-after');
        assert.deepEqual((await said()).sort(), fields);
        assert.deepEqual((await said()).sort(), [...fields, 'retry-after'].sort());
      }
    });

    test('a store that is missing is 503, not 429', async (t) => {
      for (const onStoreError of ['raise', 'closed']) {
        // Nobody listens on port 1.
        const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError, policies: { login: '1/minute' } });
        t.after(() => limiter.close());
        const url = await serving(t, { limits: [{ limiter, policy: 'login' }] });
        const { status, headers, body } = await get(url);
        assert.equal(status, 503, onStoreError);
        assert.equal(headers['retry-after'], '1');
        assert.equal(headers['content-type'], 'application/problem+json');
        assert.equal(
          JSON.parse(body).type,
          'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
        );
        assert.equal(headers['ratelimit'], undefined);
      }
    });

    test('the Decision is on the request', async (t) => {
      const { limiter } = limiting({ login: '5/minute' });
      const decisions = [];
      const handler = async ({ decision }) => {
        decisions.push(decision);
        // Known only after the work.
        await limiter.settle(decision, 4);
        return { body: 'hello' };
      };
      const url = await serving(t, { limits: [{ limiter, policy: 'login' }], handler });
      await get(url);
      assert.equal(decisions[0].policy, 'login');
      assert.equal(decisions[0].key, '127.0.0.1');
      assert.equal(decisions[0].remaining, 4);
      assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 1);
    });

    test('skip, methods and cost', async (t) => {
      const { limiter } = limiting({ login: '10/minute' });
      const left = async () => (await limiter.peek('login', 'all')).remaining;
      const url = await serving(t, {
        limits: [
          {
            limiter,
            policy: 'login',
            key: 'all',
            methods: ['POST', 'put'],
            skip: async (request) => pathOf(request) === '/health',
            cost: (request) => (pathOf(request) === '/dear' ? 4 : 1),
          },
        ],
      });
      const answer = await get(url);
      assert.equal(answer.headers['ratelimit'], undefined);
      assert.equal((await get(url, { method: 'HEAD' })).status, 200);
      assert.equal((await get(`${url}/health`, { method: 'POST' })).headers['ratelimit'], undefined);
      assert.equal(await left(), 10);
      await get(url, { method: 'POST' });
      assert.equal(await left(), 9);
      await get(`${url}/dear`, { method: 'PUT' });
      assert.equal(await left(), 5);
    });

    test('several policies are one question, each with its own key', async (t) => {
      const { limiter } = limiting({ client: '3/minute', service: '2/minute' });
      const url = await serving(t, {
        limits: [{ limiter, policy: ['client', { policy: 'service', key: 'all' }] }],
      });
      const first = await get(url);
      assert.deepEqual(items(first.headers['ratelimit-policy']), { client: { q: 3, w: 60 }, service: { q: 2, w: 60 } });
      assert.equal(first.headers['x-ratelimit-limit'], '2');
      await get(url);
      const refused = await get(url);
      assert.equal(refused.status, 429);
      assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['service']);
      // All or nothing: the refusal cost the client nothing.
      assert.equal((await limiter.peek('client', '127.0.0.1')).remaining, 1);
    });

    test('a policy may depend on the request', async (t) => {
      const { limiter } = limiting({ free: '1/minute', paid: '5/minute' });
      const policy = async (request) => (pathOf(request) === '/paid' ? 'paid' : new Policy('2/minute'));
      const url = await serving(t, { limits: [{ limiter, policy }] });
      assert.equal((await get(`${url}/paid`)).headers['x-ratelimit-limit'], '5');
      assert.equal((await get(url)).headers['x-ratelimit-limit'], '2');
    });

    test('two on the way of a request speak with one voice', async (t) => {
      const { limiter } = limiting({ service: 'fixed-window 5/minute', login: 'fixed-window 2/minute' });
      const url = await serving(t, {
        limits: [
          { limiter, policy: 'service' },
          { limiter, policy: 'login' },
        ],
      });
      const { headers } = await get(url);
      assert.deepEqual(items(headers['ratelimit']), { service: { r: 4, t: 60 }, login: { r: 1, t: 60 } });
      assert.equal(headers['x-ratelimit-limit'], '2');
      await get(url);
      const refused = await get(url);
      assert.equal(refused.status, 429);
      assert.deepEqual(items(refused.headers['ratelimit-policy']), {
        service: { q: 5, w: 60 },
        login: { q: 2, w: 60 },
      });
      assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login']);
    });

    test('onDenied may say the body, or only look', async (t) => {
      for (const [said, expected] of [
        [{ sorry: true }, '{"sorry":true}'],
        [undefined, /^\{"type":/],
      ]) {
        const { limiter } = limiting({ login: 'fixed-window 1/minute' });
        const seen = [];
        const onDenied = (request, decision, response) => {
          seen.push([pathOf(request), decision.policy, response !== undefined]);
          return said;
        };
        const url = await serving(t, { limits: [{ limiter, policy: 'login', onDenied }] });
        await get(url);
        const { status, headers, body } = await get(`${url}/again`);
        assert.equal(status, 429);
        assert.equal(headers['retry-after'], '60');
        if (typeof expected === 'string') assert.equal(body, expected);
        else assert.match(body, expected);
        assert.deepEqual(seen, [['/again', 'login', true]]);
      }
    });

    test('refundWhen gives back what was consumed', async (t) => {
      const { limiter } = limiting({ login: '5/minute' });
      const left = async () => (await limiter.peek('login', '127.0.0.1')).remaining;
      const handler = async ({ url }) => ({ status: Number(url.slice(1)), body: '' });
      const refundWhen = async (response) => (response.statusCode ?? response.status) === 304;
      const url = await serving(t, { limits: [{ limiter, policy: 'login', cost: 2, refundWhen }], handler });
      await get(`${url}/200`);
      assert.equal(await left(), 3);
      await get(`${url}/304`);
      await until('a 304 is charged back', async () => (await left()) === 3);
      await get(`${url}/200`);
      assert.equal(await left(), 1);
    });

    describe('holds', () => {
      const free = (limiter, units) => async () => (await limiter.peek('exports', 'all')).limits[0].remaining === units;
      const policy = { policy: 'exports', key: 'all' };

      test('last as long as the response', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 1; 100/minute' });
        const { body, letGo } = halves();
        const handler = async ({ url }) => ({ body: url === '/stream' ? body : 'hello' });
        const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
        const answer = await open(`${url}/stream`);
        assert.equal(answer.statusCode, 200);
        assert.deepEqual(items(answer.headers['ratelimit-policy']), {
          exports: { q: 1, qu: 'concurrent-requests' },
        });
        await new Promise((resolve) => answer.once('data', resolve));
        // The first bytes are there, the last are not.
        assert.equal((await get(url)).status, 429);
        letGo();
        for await (const _ of answer);
        await until('the hold is given back', free(limiter, 1));
        assert.equal((await get(url)).status, 200);
        await until('the next one too', free(limiter, 1));
      });

      test('end when the client goes away', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 1' });
        const { body } = halves();
        const handler = async () => ({ body });
        const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
        const answer = await open(url);
        await new Promise((resolve) => answer.once('data', resolve));
        assert.equal((await limiter.peek('exports', 'all')).remaining, 0);
        answer.destroy();
        await until('the hold is given back', free(limiter, 1));
      });

      test('end when the client gives up waiting', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 1' });
        const began = resolvers();
        const handler = async () => {
          began.resolve();
          return new Promise(() => {});
        };
        const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
        const sent = send(url);
        await began.promise;
        assert.equal((await limiter.peek('exports', 'all')).remaining, 0);
        sent.destroy();
        await until('the hold is given back', free(limiter, 1));
      });

      test('end with an answer without a body, and with an error', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 1' });
        const handler = async ({ url }) => {
          if (url === '/error') throw new Error('on purpose');
          return url === '/304' ? { status: 304, body: '' } : { body: 'hello' };
        };
        const url = await serving(t, { limits: [{ limiter, ...policy }], handler });
        for (const [path, method, status] of [
          ['/304', 'GET', 304],
          ['/', 'HEAD', 200],
          ['/error', 'GET', 500],
        ]) {
          assert.equal((await get(url + path, { method })).status, status);
          await until(`${method} ${path} gives its hold back`, free(limiter, 1));
        }
      });

      test('are given back when another policy refuses', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 5', login: '1/minute' });
        const url = await serving(t, { limits: [{ limiter, policy: [policy, 'login'] }] });
        assert.equal((await get(url)).status, 200);
        const refused = await get(url);
        assert.equal(refused.status, 429);
        assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login']);
        await until('both are given back', free(limiter, 5));
      });

      test('cost nothing else when there is no room', async (t) => {
        const { limiter } = limiting({ exports: 'concurrency 1', login: '5/minute' });
        await limiter.hold('exports', 'all');
        const url = await serving(t, { limits: [{ limiter, policy: ['login', policy] }] });
        assert.equal((await get(url)).status, 429);
        assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 5);
      });
    });

    describe('who is limited', () => {
      /** The keys that a server saw. */
      async function keys(t, key, requests, more = {}) {
        const { limiter } = limiting({ login: '100/minute' });
        const seen = [];
        const handler = async ({ decision }) => {
          seen.push(decision.key);
          return { body: 'hello' };
        };
        const url = await serving(t, { limits: [{ limiter, policy: 'login', key }], handler, ...more });
        for (const headers of requests) assert.equal((await get(url, { headers })).status, 200);
        return seen;
      }

      test('an address, through trusted proxies only', async (t) => {
        const forwarded = [{ 'x-forwarded-for': '198.51.100.1' }, { 'x-forwarded-for': '2001:db8:1:2:3::4' }, {}];
        assert.deepEqual(await keys(t, undefined, forwarded), ['127.0.0.1', '127.0.0.1', '127.0.0.1']);
        const trusting = adapter.clientIp({ trustedProxies: ['loopback'] });
        assert.deepEqual(await keys(t, trusting, forwarded), ['198.51.100.1', '2001:db8:1:2::/64', '127.0.0.1']);
        const wide = adapter.clientIp({ trustedProxies: ['127.0.0.0/8'], ipv6Prefix: 32 });
        assert.deepEqual(await keys(t, wide, forwarded), ['198.51.100.1', '2001:db8::/32', '127.0.0.1']);
      });

      test('an API key, which is hashed', async (t) => {
        const seen = await keys(t, adapter.header('X-API-Key'), [
          { 'x-api-key': 'secret' },
          { 'x-api-key': 'other' },
          {},
        ]);
        assert.match(seen[0], /^[0-9a-f]{32}$/);
        assert.notEqual(seen[0], seen[1]);
        assert.equal(seen[2], 'anonymous:127.0.0.1');
      });

      test('a user, or a claim', async (t) => {
        const users = [{ 'x-user': '"alice"' }, { 'x-user': '{"id": 7}' }, {}];
        assert.deepEqual(await keys(t, adapter.user(), users), ['alice', '7', 'anonymous:127.0.0.1']);
        const claims = [{ 'x-claims': '{"sub": "alice", "n": 1}' }, { 'x-claims': '{}' }, {}];
        const anonymous = 'anonymous:127.0.0.1';
        assert.deepEqual(await keys(t, adapter.claim('sub'), claims), ['alice', anonymous, anonymous]);
      });

      test('any function', async (t) => {
        assert.deepEqual(await keys(t, () => 'everybody', [{}]), ['everybody']);
        assert.deepEqual(await keys(t, async () => 42, [{}]), ['42']);
      });

      if (trust) {
        test('the framework knows the proxies', async (t) => {
          const requests = [{ 'x-forwarded-for': '198.51.100.1' }];
          const list = name === 'Koa' ? undefined : { trust: '10.0.0.1, loopback' };
          if (list) assert.deepEqual(await keys(t, undefined, requests, list), ['198.51.100.1']);
          const explicit = adapter.clientIp({ trustedProxies: ['loopback'] });
          assert.deepEqual(await keys(t, explicit, requests, { trust: true }), ['198.51.100.1']);
        });

        test('a framework that trusts anyone is refused', async (t) => {
          // A number of hops or a function names no proxy either. (A network of all addresses the frameworks refuse.)
          for (const trust of name === 'Koa' ? [true] : [true, 1, () => true]) {
            const { limiter } = limiting({ login: '1/minute' });
            const error = await failing(t, { limits: [{ limiter, policy: 'login' }], trust });
            assert.equal(error?.code, 'config_invalid', String(trust));
            assert.match(error.message, /anyone could choose the address/);
            assert.match(error.message, /trustedProxies/);
          }
        });
      }
    });

    describe('wrong use is loud', () => {
      test('a key that names nobody', async (t) => {
        for (const nobody of [undefined, null, '', {}, Number.NaN]) {
          const { limiter } = limiting({ login: '1/minute' });
          const tenant = async () => nobody;
          const error = await failing(t, { limits: [{ limiter, policy: 'login', key: tenant }] });
          assert.equal(error.code, 'key_invalid');
          assert.match(error.message, /the function tenant given as key returned/);
        }
        const { limiter } = limiting({ login: '1/minute' });
        const request = { headers: { 'x-user': '{"name": "alice"}' } };
        const error = await failing(t, { limits: [{ limiter, policy: 'login', key: adapter.user() }], request });
        assert.equal(error.code, 'key_invalid');
        assert.match(error.message, /id, sub, username/);
      });

      test('a cost that is none', async (t) => {
        for (const cost of [() => undefined, () => 0.5, 0]) {
          const { limiter } = limiting({ login: '1/minute' });
          const error = await failing(t, { limits: [{ limiter, policy: 'login', cost }] });
          assert.equal(error.code, 'cost_invalid');
        }
      });

      test('the same middleware twice', async (t) => {
        const { limiter } = limiting({ login: '5/minute' });
        const error = await failing(t, { limits: [{ limiter, policy: 'login' }], twice: true });
        assert.equal(error.code, 'config_invalid');
        assert.match(error.message, /runs twice for GET \//);
        // Found before anything was counted twice.
        assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 4);
      });

      test('the same question twice', async (t) => {
        const { limiter } = limiting({ login: '5/minute' });
        const error = await failing(t, {
          limits: [
            { limiter, policy: 'login' },
            { limiter, policy: 'login' },
          ],
        });
        assert.match(error.message, /policy "login" runs twice/);
      });

      test('options that make no sense', async (t) => {
        const { limiter } = limiting({ login: '5/minute' });
        const wrong = [
          [{ limiter, policy: 'login', windowMs: 1 }, 'config_invalid', /no option windowMs/],
          [{ policy: 'login' }, 'config_invalid', /limiter/],
          [{ limiter, policy: 'logn' }, 'policy_unknown', /logn/],
          [{ limiter, policy: '' }, 'config_invalid', /policy/],
          [{ limiter, policy: [] }, 'config_invalid', /empty/],
          [{ limiter, policy: 'login', headers: 'all' }, 'config_invalid', /both, ietf, legacy, off/],
          [{ limiter, policy: 'login', key: 7 }, 'config_invalid', /key/],
          [{ limiter, policy: 'login', skip: true }, 'config_invalid', /skip/],
        ];
        for (const [options, code, says] of wrong) {
          const error = await failing(t, { limits: [options] });
          assert.equal(error?.code, code, JSON.stringify(options.policy));
          assert.match(error.message, says);
        }
        for (const trustedProxies of [['0.0.0.0/0'], ['::/0'], true, ['proxy.example']]) {
          assert.throws(() => adapter.clientIp({ trustedProxies }), { code: 'config_invalid' });
        }
        assert.throws(() => adapter.clientIp({ ipv6Prefix: 0 }), { code: 'config_invalid' });
        assert.throws(() => adapter.header(''), { code: 'config_invalid' });
      });
    });
  });
}

function resolvers() {
  const made = {};
  made.promise = new Promise((resolve) => {
    made.resolve = resolve;
  });
  return made;
}

/** The path of any framework's request. */
function pathOf(request) {
  return request.path ?? request.req?.path ?? request.url;
}
