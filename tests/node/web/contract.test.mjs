// Promises of every adapter: errors for unknown options, the results of functions, and the way of a refusal.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, Policy } from 'tidegate';
import { get, until } from './client.mjs';
import { forEachAdapter, limiting, pathOf } from './each_adapter.mjs';

forEachAdapter(({ name, adapter, serving, failing }) => {
  const layered = name.startsWith('Nest') || name.startsWith('Fastify');
  const place = (path) => (name.startsWith('Nest') ? `${path}.handle` : path);

  test('an option that does not exist is an error that names the nearest right one', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const mistakes = [
      [{ limiter, polcy: 'login' }, /no option polcy: did you mean policy\?/],
      [{ limiter, policy: 'login', kee: 'all' }, /no option kee: did you mean key\?/],
      [{ limiter, policy: 'login', refund_when: () => true }, /no option refund_when: did you mean refundWhen\?/],
      [{}, /limiter/],
      [null, /give options|limiter is missing/],
      [undefined, /give options|limiter/],
      ['login', /give options/],
      [{ limiter, policy: 'login', methods: ['GTE'] }, /"GTE".*did you mean GET\?/],
      [{ limiter, policy: 'login', methods: 'GET' }, /methods/],
      [{ limiter, policy: 'login', methods: [] }, /methods is an empty list/],
      [{ limiter, policy: 'login', key: null }, /key cannot be null/],
      [{ limiter, policy: 'login', headers: null }, /headers cannot be null/],
      [{ limiter, policy: 'login', enabled: 'no' }, /enabled/],
      [{ limiter, policy: 'login', perMethod: 1 }, /perMethod/],
      [{ limiter, policy: 'login', settle: 5 }, /settle/],
      [{ limiter, policy: 'login', onDenied: 'next' }, /onDenied/],
      [{ limiter, policy: 'login', key: adapter.clientIp }, /call it/],
      [{ limiter, policy: { policy: 'login', kost: 2 } }, /no option kost: did you mean cost\?/],
      [{ limiter, policy: ['login', 'login'] }, /twice/],
    ];
    for (const [options, says] of mistakes) {
      // The error comes before the first request.
      const start = async () => serving(t, { limits: [options] });
      await assert.rejects(start, (error) => {
        assert.equal(error.code, 'config_invalid', `${says}: ${error.stack}`);
        assert.match(error.message, says);
        return true;
      });
    }
  });

  test('what a program adds to every object is no option', async (t) => {
    const added = {
      enabled: false,
      shadow: true,
      skip: () => true,
      cost: 5,
      perMethod: true,
      refundWhen: () => true,
      trustedProxies: 1,
      ipv6Prefix: null,
    };
    const answers = async (url) => {
      const { status } = await get(url, { headers: { 'x-forwarded-for': '198.51.100.7' } });
      return [status, (await get(url)).status, (await get(url)).headers['x-ratelimit-limit']];
    };
    // Fastify itself takes enumerable properties for names that it knows.
    const enumerable = !name.startsWith('Fastify') && !name.endsWith('Fastify');
    for (const [name, value] of Object.entries(added)) {
      Object.defineProperty(Object.prototype, name, { value, enumerable, configurable: true, writable: true });
    }
    try {
      const limiter = new Limiter();
      const key = adapter.clientIp();
      for (const options of [{ policy: 'fixed-window 1/hour' }, { policy: new Policy('fixed-window 1/day'), key }]) {
        const url = await serving(t, { limits: [{ limiter, ...options }] });
        assert.deepEqual(await answers(url), [200, 429, '1']);
      }
      const route = { policy: 'fixed-window 1/week', ...(!layered && { limiter }) };
      const url = await serving(t, { limits: layered ? [{ limiter }] : [], routes: [['/', route]] });
      assert.deepEqual(await answers(url), [200, 429, '1']);
    } finally {
      for (const name of Object.keys(added)) delete Object.prototype[name];
    }
  });

  test('a cost that no request can have is an error at start', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    for (const options of [{ cost: 0 }, { cost: -1 }, { cost: 0.5 }, { cost: Number.NaN }, { cost: '1' }]) {
      await assert.rejects(async () => serving(t, { limits: [{ limiter, policy: 'login', ...options }] }), {
        code: 'cost_invalid',
      });
    }
    await assert.rejects(async () => serving(t, { limits: [{ limiter, policy: { policy: 'login', cost: 0 } }] }), {
      code: 'cost_invalid',
    });
  });

  test('a constant that no call takes is an error where it is written', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    for (const meta of ['half \ud800', 'm'.repeat(70_000), new Uint8Array(70_000)]) {
      await assert.rejects(async () => serving(t, { limits: [{ limiter, policy: 'login', meta }] }), {
        code: 'config_invalid',
        message: /meta/,
      });
    }
    for (const key of ['half \ud800', 'k'.repeat(70_000)]) {
      assert.throws(() => adapter.fixed(key), { code: 'key_invalid' });
    }
  });

  test('the key helpers refuse options that do not exist', () => {
    for (const helper of [adapter.clientIp, (options) => adapter.header('x', options), adapter.user]) {
      assert.throws(() => helper({ proxies: 1 }), { code: 'config_invalid', message: /did you mean trustedProxies\?/ });
      assert.throws(() => helper(null), { code: 'config_invalid' });
      assert.throws(() => helper(['10.0.0.0/8']), { code: 'config_invalid' });
      assert.throws(() => helper({ trustedProxies: null }), { code: 'config_invalid' });
    }
  });

  test('a function chooses the policy: a name, a notation, several, or nothing', async (t) => {
    const { limiter } = limiting({ free: 'fixed-window 5/minute', paid: 'fixed-window 9/minute' });
    const choices = { '/name': 'free', '/notation': 'fixed-window 3/minute', '/both': ['free', 'paid'], '/none': null };
    const policy = (request) => choices[pathOf(request)];
    const url = await serving(t, { limits: [{ limiter, policy }] });
    const seen = async (path) => (await get(url + path)).headers['ratelimit'];
    assert.match(await seen('/name'), /^"free";r=4/);
    assert.match(await seen('/notation'), /;r=2;/);
    assert.match(await seen('/both'), /^"free";r=3;t=60, "paid";r=8/);
    assert.equal(await seen('/none'), undefined);
    assert.equal(await seen('/else'), undefined);
    assert.equal((await get(`${url}/none`)).status, 200);
  });

  test('enabled: false limits nothing, and so does TIDEGATE_ENABLED', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 1/minute' });
    const answers = async (options) => {
      const url = await serving(t, { limits: [{ limiter, policy: 'login', ...options }] });
      return [(await get(url)).status, (await get(url)).status, (await get(url)).headers['ratelimit']];
    };
    assert.deepEqual(await answers({ enabled: false }), [200, 200, undefined]);
    process.env.TIDEGATE_ENABLED = 'false';
    try {
      assert.deepEqual(await answers({}), [200, 200, undefined]);
      // An option in the code is stronger than the environment.
      assert.deepEqual((await answers({ enabled: true })).slice(0, 2), [200, 429]);
      process.env.TIDEGATE_ENABLED = 'perhaps';
      await assert.rejects(answers({}), { code: 'config_invalid', message: /TIDEGATE_ENABLED/ });
    } finally {
      delete process.env.TIDEGATE_ENABLED;
    }
  });

  test('meta goes to the journal', async (t) => {
    const { clock, limiter } = limiting({
      login: { limits: 'fixed-window 2/minute', journal: 5 },
      other: { limits: 'fixed-window 9/minute', journal: 5 },
      held: { limits: 'concurrency 5', journal: 5 },
    });
    clock.advance(1);
    const meta = (request) => `user of ${pathOf(request)}`;
    const url = await serving(t, { limits: [{ limiter, policy: 'login', key: () => 'all', meta }] });
    await get(`${url}/a`);
    await get(`${url}/b`);
    await get(`${url}/c`);
    const entries = await limiter.journal('login', 'all');
    const text = (bytes) => (bytes === undefined || bytes === null ? bytes : Buffer.from(bytes).toString());
    assert.deepEqual(
      entries.map(({ meta }) => text(meta)),
      ['user of /c', 'user of /b', 'user of /a'],
    );
    const several = ['login', 'other', { policy: 'held', cost: 1 }];
    const together = await serving(t, { limits: [{ limiter, policy: several, key: () => 'bob', meta }] });
    await get(`${together}/d`);
    for (const policy of ['login', 'other', 'held']) {
      assert.deepEqual(
        (await limiter.journal(policy, 'bob')).map(({ meta }) => text(meta)),
        ['user of /d'],
        policy,
      );
    }
    const fixed = await serving(t, { limits: [{ limiter, policy: 'other', key: () => 'all', meta: 'fixed' }] });
    await get(fixed);
    assert.deepEqual(
      (await limiter.journal('other', 'all')).map(({ meta }) => text(meta)),
      ['fixed'],
    );
  });

  test('settle charges what the request should have consumed', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 10/minute' });
    const left = async () => (await limiter.peek('login', 'all')).remaining;
    const handler = async ({ url }) => ({ status: Number(url.slice(1)), body: '' });
    const settle = (response) => ((response.statusCode ?? response.status) === 201 ? 5 : undefined);
    const url = await serving(t, {
      limits: [{ limiter, policy: 'login', key: () => 'all', cost: 2, settle }],
      handler,
    });
    await get(`${url}/201`);
    await until('the difference is charged', async () => (await left()) === 5);
    await get(`${url}/200`);
    assert.equal(await left(), 3);
  });

  test('settle of several policies: one number is for those that name a cost', async (t) => {
    const limits = { rpm: 'fixed-window 60/minute', tpm: 'fixed-window 1000/minute', busy: 'concurrency 2' };
    const actual = { '/number': 300, '/list': [2, 0, 300], '/map': { tpm: 300 }, '/nothing': undefined };
    for (const [path, given] of Object.entries(actual)) {
      const { limiter } = limiting(limits);
      let settled = false;
      const settle = async () => {
        setImmediate(() => {
          settled = true;
        });
        return given;
      };
      const policy = ['rpm', 'busy', { policy: 'tpm', cost: 500 }];
      const url = await serving(t, { limits: [{ limiter, policy, key: () => 'all', settle }] });
      assert.equal((await get(url + path)).status, 200);
      await until('settle was called', async () => settled);
      const left = async () => Promise.all(Object.keys(limits).map((name) => limiter.peek(name, 'all')));
      const expected = { '/number': '59,700,2', '/list': '58,700,2', '/map': '59,700,2', '/nothing': '59,500,2' }[path];
      await until(`${path} is settled`, async () => String((await left()).map((one) => one.remaining)) === expected);
    }
  });

  test('refundWhen gives back the rate of a policy that also has a concurrency limit', async (t) => {
    const { limiter } = limiting({ login: 'concurrency 2; fixed-window 5/minute' });
    const left = async () => (await limiter.peek('login', 'all')).limits.map(({ remaining }) => remaining);
    const handler = async ({ url }) => ({ status: Number(url.slice(1)), body: '' });
    const refundWhen = (response) => (response.statusCode ?? response.status) === 304;
    const url = await serving(t, { limits: [{ limiter, policy: 'login', key: () => 'all', refundWhen }], handler });
    await get(`${url}/304`);
    await until('hold and rate are given back', async () => String(await left()) === '2,5');
    await get(`${url}/200`);
    await until('the hold is given back', async () => String(await left()) === '2,4');
  });

  test('a hold before a refusal leaves no trace in its rate', async (t) => {
    const { limiter } = limiting({ exports: 'concurrency 2; fixed-window 5/minute', login: 'fixed-window 1/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: ['exports', 'login'], key: () => 'all' }] });
    assert.equal((await get(url)).status, 200);
    assert.equal((await get(url)).status, 429);
    const left = async () => (await limiter.peek('exports', 'all')).limits.map(({ remaining }) => remaining);
    await until('the refused request has given back both', async () => String(await left()) === '2,4');
  });

  test('whatever a function rejects with is an error, and never an admission', async (t) => {
    const functions = {
      key: { policy: 'login' },
      cost: { policy: 'login' },
      skip: { policy: 'login' },
      meta: { policy: 'login' },
      policy: {},
      onDenied: { policy: 'none' },
    };
    for (const [option, more] of Object.entries(functions)) {
      for (const reason of [undefined, null, 'route']) {
        for (const how of ['throws', 'rejects']) {
          const { limiter } = limiting({ login: { limits: '5/minute', journal: 5 }, none: '0/minute' });
          let handlers = 0;
          const handler = async () => {
            handlers++;
            return { body: 'hello' };
          };
          const fails = () => {
            if (how === 'throws') throw reason;
            return Promise.reject(reason);
          };
          const url = await serving(t, { limits: [{ limiter, ...more, [option]: fails }], handler });
          const { status, body } = await get(url);
          assert.deepEqual([status, handlers], [500, 0], `${option} ${how} ${String(reason)}: ${body}`);
        }
      }
    }
  });

  test('an onDenied that throws is no refusal', async (t) => {
    const { limiter } = limiting({ none: '0/minute' });
    const onDenied = async () => {
      throw new TypeError('a bug');
    };
    const failures = [];
    const failed = (error) => failures.push(error);
    const url = await serving(t, { limits: [{ limiter, policy: 'none', onDenied }], failed });
    assert.equal((await get(url)).status, 500);
    assert.equal(failures[0].message, 'a bug');
  });

  test('methods with GET limit HEAD, which the same handler answers', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 2/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: 'login', methods: ['GET'] }] });
    const statuses = [];
    for (const method of ['HEAD', 'POST', 'GET', 'HEAD', 'GET', 'POST']) {
      statuses.push((await get(url, { method })).status);
    }
    assert.deepEqual(statuses, [200, 200, 200, 429, 429, 200]);
  });

  test('two requests see the Decision, typed as theirs', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 5/minute' });
    const seen = [];
    const handler = async ({ decision }) => {
      seen.push([decision?.policy, decision?.remaining]);
      return { body: 'hello' };
    };
    const url = await serving(t, { limits: [{ limiter, policy: 'login' }], handler });
    await get(url);
    await get(url);
    assert.deepEqual(seen, [
      ['login', 4],
      ['login', 3],
    ]);
  });

  if (!layered) {
    test("onDenied: 'throw' gives a refusal to the framework's error handling", async (t) => {
      const { limiter } = limiting({ login: 'fixed-window 1/minute' });
      const errors = [];
      const url = await serving(t, {
        limits: [{ limiter, policy: 'login', onDenied: 'throw' }],
        failed: (error) => errors.push(error),
      });
      assert.equal((await get(url)).status, 200);
      const refused = await get(url);
      assert.deepEqual([refused.status, refused.headers['cache-control']], [429, 'no-store']);
      if (name.startsWith('Hono')) return;
      assert.equal(errors[0].headers['Cache-Control'], 'no-store');
      assert.equal(errors[0].code, 'rate_limited');
      assert.equal(errors[0].decision.policy, 'login');
      assert.equal(errors[0].headers['Retry-After'], '60');
    });
  } else {
    test('a skip of the layer stays when a route has its own', async (t) => {
      const { limiter } = limiting({ all: 'fixed-window 9/minute', login: 'fixed-window 5/minute' });
      const header = (field) => (request) => request.headers[field] !== undefined;
      const url = await serving(t, {
        limits: [{ limiter, policy: 'all', skip: header('x-health') }],
        routes: [['/login', { policy: 'login', skip: header('x-admin') }]],
      });
      const seen = async (headers) => (await get(`${url}/login`, { headers })).headers['ratelimit'];
      assert.match(await seen({}), /^"login";r=4/);
      assert.equal(await seen({ 'x-health': '1' }), undefined);
      assert.equal(await seen({ 'x-admin': '1' }), undefined);
    });

    test('a default is a budget of each route without a limit of its own', async (t) => {
      const { limiter } = limiting({ all: 'fixed-window 9/minute' });
      const notation = 'fixed-window 2/minute';
      const url = await serving(t, {
        limits: [{ limiter, default: notation, application: 'all' }],
        routes: [
          ['/one', {}],
          ['/other', {}],
          ['/own', { policy: 'fixed-window 1/minute' }],
          ['/free', false],
        ],
      });
      const calls = ['/one', '/one', '/one', '/other', '/own', '/own', '/free'];
      const statuses = [];
      for (const path of calls) statuses.push((await get(url + path)).status);
      assert.deepEqual(statuses, [200, 200, 429, 200, 200, 429, 200]);
      assert.equal((await limiter.peek('all', '127.0.0.1')).remaining, 5);
      assert.equal((await limiter.peek(notation, `${place('/one')} 127.0.0.1`)).remaining, 0);
      const error = await failing(t, { limits: [{ limiter, default: 'all', policy: 'all' }] });
      assert.match(error.message, /one of the two/);
    });
  }
});
