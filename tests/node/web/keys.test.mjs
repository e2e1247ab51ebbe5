// The keys of every adapter, over real HTTP.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { placedKey } from 'tidegate/http';
import { get } from './client.mjs';
import { forEachAdapter, limiting } from './each_adapter.mjs';

const layered = JSON.parse(readFileSync(new URL('../../http/layered-keys.json', import.meta.url)));

forEachAdapter(({ name, adapter, trust, serving, failing }) => {
  /** The keys of the requests of a server. */
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

  test('clientIp reads X-Forwarded-For of trusted proxies only', async (t) => {
    const forwarded = [{ 'x-forwarded-for': '198.51.100.1' }, { 'x-forwarded-for': '2001:db8:1:2:3::4' }, {}];
    assert.deepEqual(await keys(t, undefined, forwarded), ['127.0.0.1', '127.0.0.1', '127.0.0.1']);
    const trusting = adapter.clientIp({ trustedProxies: ['loopback'] });
    assert.deepEqual(await keys(t, trusting, forwarded), ['198.51.100.1', '2001:db8:1:2::/64', '127.0.0.1']);
    const wide = adapter.clientIp({ trustedProxies: ['127.0.0.0/8'], ipv6Prefix: 32 });
    assert.deepEqual(await keys(t, wide, forwarded), ['198.51.100.1', '2001:db8::/32', '127.0.0.1']);
  });

  test('header hashes the value', async (t) => {
    const seen = await keys(t, adapter.header('X-API-Key'), [{ 'x-api-key': 'secret' }, { 'x-api-key': 'other' }, {}]);
    assert.match(seen[0], /^[0-9a-f]{32}$/);
    assert.notEqual(seen[0], seen[1]);
    assert.equal(seen[2], 'anonymous:127.0.0.1');
  });

  /** A key of the vectors. A number after the name of a header is the hops of its address. */
  const made = ([kind, given, hops]) => {
    if (kind === 'client_ip') return adapter.clientIp({ trustedProxies: given });
    return adapter[kind](given, ...(hops === undefined ? [] : [{ trustedProxies: hops }]));
  };

  for (const { name: title, layer, limit, headers, counted } of layered.cases) {
    const keyed = { ...(layer && { key: made(layer) }) };
    const own = limit && made(limit);
    const expected = counted.replace('{peer}', '127.0.0.1');
    /** Checks the key under which a request was counted, by a middleware or by the last of several. */
    const count = async (t, describe) => {
      const { limiter } = limiting({ login: '100/minute', all: '100/minute' });
      const { status } = await get(await serving(t, describe(limiter)), { headers });
      assert.equal(status, 200);
      assert.equal((await limiter.peek('login', expected)).remaining, 99);
    };

    test(`a caller without a key: ${title}`, async (t) => {
      await count(t, (limiter) => {
        const policy = { policy: 'login', ...(own && { key: own }) };
        return { limits: [{ limiter, policy, ...keyed }] };
      });
    });

    test(`a caller without a key, of a route: ${title}`, async (t) => {
      await count(t, (limiter) => {
        const route = { policy: 'login', ...(own ? { key: own } : /^Express|Koa|Hono|Web/.test(name) && keyed) };
        return /^Nest|Fastify/.test(name)
          ? { limits: [{ limiter, ...keyed }], routes: [['/', route]] }
          : // The first middleware limits no request, and passes to the second how it reads addresses.
            {
              limits: [
                { limiter, policy: 'all', methods: ['POST'], ...keyed },
                { limiter, ...route },
              ],
            };
      });
    });
  }

  test('user and claim read what the application has authenticated', async (t) => {
    const users = [{ 'x-user': '"alice"' }, { 'x-user': '{"id": 7}' }, {}];
    assert.deepEqual(await keys(t, adapter.user(), users), ['alice', '7', 'anonymous:127.0.0.1']);
    const claims = [{ 'x-claims': '{"sub": "alice", "n": 1}' }, { 'x-claims': '{}' }, {}];
    const anonymous = 'anonymous:127.0.0.1';
    assert.deepEqual(await keys(t, adapter.claim('sub'), claims), ['alice', anonymous, anonymous]);
  });

  test('no user spends the budget of an address, of a client without a name, or of another place', async (t) => {
    const { limiter } = limiting({ login: 'fixed-window 1/minute' });
    const route = `/login${name.startsWith('Nest') ? '.handle' : ''}`;
    const notation = 'fixed-window 1/minute';
    const places = [
      [{ limiter, policy: 'login', key: adapter.user() }, ['anonymous:127.0.0.1', '127.0.0.1', '"" GET 127.0.0.1']],
      [{ limiter, policy: notation, key: adapter.user() }, [`${route} 127.0.0.1`, `"${route}" 127.0.0.1`]],
      [{ limiter, policy: notation, key: adapter.claim('sub') }, [`${route} GET 127.0.0.1`]],
    ];
    // Handlers of `Request` do not know their route, and two limits may not share a notation.
    if (name.startsWith('Web')) places.splice(1);
    for (const [options, names] of places) {
      const url = await serving(t, { limits: [options] });
      for (const user of names) {
        const claims = JSON.stringify({ sub: user });
        const { status } = await get(url, { headers: { 'x-user': JSON.stringify(user), 'x-claims': claims } });
        assert.equal(status, 200, user);
      }
    }
    const others = [
      ['login', 'anonymous:127.0.0.1'],
      ['login', '127.0.0.1'],
      ['login', placedKey('', '127.0.0.1', 'GET')],
      [notation, placedKey(route, '127.0.0.1')],
      [notation, placedKey(route, '127.0.0.1', 'GET')],
    ];
    for (const [policy, key] of others) assert.equal((await limiter.peek(policy, key)).remaining, 1, key);
  });

  test('one key for all, where that is said', async (t) => {
    assert.deepEqual(await keys(t, adapter.fixed('all'), [{}, { 'x-api-key': 'secret' }]), ['all', 'all']);
    assert.throws(() => adapter.fixed(7), { code: 'config_invalid', message: /fixed\('all'\)/ });
  });

  test('a function may derive the key', async (t) => {
    assert.deepEqual(await keys(t, () => 'all', [{}]), ['all']);
    assert.deepEqual(await keys(t, async () => 42, [{}]), ['42']);
  });

  if (trust) {
    test("the framework's own setting names the proxies", async (t) => {
      const requests = [{ 'x-forwarded-for': '198.51.100.1' }];
      const list = name === 'Koa' ? undefined : { trust: '10.0.0.1, loopback' };
      if (list) assert.deepEqual(await keys(t, undefined, requests, list), ['198.51.100.1']);
      const explicit = adapter.clientIp({ trustedProxies: ['loopback'] });
      assert.deepEqual(await keys(t, explicit, requests, { trust: true }), ['198.51.100.1']);
    });

    test('a number of hops says which entry is the client', async (t) => {
      const requests = [
        { 'x-forwarded-for': '198.51.100.1' },
        { 'x-forwarded-for': '203.0.113.9, 198.51.100.1' },
        { 'x-forwarded-for': 'no address' },
        {},
      ];
      const seen = await keys(t, undefined, requests, { trust: 1 });
      assert.deepEqual(seen, ['198.51.100.1', '198.51.100.1', '127.0.0.1', '127.0.0.1']);
    });

    if (name !== 'Koa') {
      test('a function says which addresses are proxies', async (t) => {
        const trust = (address) => address === '127.0.0.1' || address.startsWith('10.');
        const requests = [{ 'x-forwarded-for': '203.0.113.9, 198.51.100.1, 10.1.1.1' }, {}];
        assert.deepEqual(await keys(t, undefined, requests, { trust }), ['198.51.100.1', '127.0.0.1']);
      });
    }

    test('a setting that trusts every client is an error', async (t) => {
      // The frameworks themselves refuse a network of all addresses.
      for (const trust of name === 'Koa' ? [true] : [true, () => true]) {
        const { limiter } = limiting({ login: '1/minute' });
        const error = await failing(t, { limits: [{ limiter, policy: 'login' }], trust });
        assert.equal(error?.code, 'config_invalid', String(trust));
        assert.match(error.message, /anyone could choose the address/);
        assert.match(error.message, /trustedProxies/);
      }
    });
  }
});
