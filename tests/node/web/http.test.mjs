// `tidegate/http`: fields and problem for `Request` and `Response`, and for `node:http`.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Limiter, ManualClock } from 'tidegate';
import * as http from 'tidegate/http';
import { get } from './client.mjs';
import { listening } from './servers/listening.mjs';

const limiting = () =>
  new Limiter({ policies: { login: 'fixed-window 1/minute' }, clock: new ManualClock(1_704_067_200_000) });

test('Request and Response', async () => {
  const limiter = limiting();
  const allowed = await limiter.check('login', 'alice');
  const answer = http.withFields(new Response('hello', { status: 201 }), allowed);
  assert.equal(answer.status, 201);
  assert.equal(await answer.text(), 'hello');
  assert.equal(answer.headers.get('ratelimit'), '"login";r=0;t=60');
  const denied = await limiter.check('login', 'alice');
  const refused = http.refusal(denied, 'ietf');
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('retry-after'), '60');
  assert.equal(refused.headers.get('cache-control'), 'no-store');
  assert.equal(refused.headers.get('content-type'), 'application/problem+json');
  assert.equal(refused.headers.get('x-ratelimit-limit'), null);
  assert.deepEqual(await refused.json(), JSON.parse(http.problem(denied)));
  assert.deepEqual(Object.keys(http.fields(denied, 'off')), ['Retry-After']);
  assert.deepEqual(http.fields([allowed])['X-RateLimit-Limit'], '1');
  for (const wrong of [{ ...denied }, [denied, undefined], null]) {
    assert.throws(() => http.fields(wrong), { code: 'config_invalid', message: /give a Decision/ });
  }
  assert.throws(() => http.fields([]), { code: 'config_invalid' });
  assert.throws(() => http.fields(allowed, 'all'), { code: 'config_invalid' });
  assert.throws(() => http.setFields(new Response(), allowed), { code: 'config_invalid' });
});

test('node:http', async (t) => {
  const limiter = limiting();
  const key = http.clientIp();
  const server = await listening(
    createServer(async (request, response) => {
      const decision = await limiter.check('login', key(request));
      if (!decision.allowed) return http.refuse(response, decision);
      http.setFields(response, decision);
      return response.end('hello');
    }).listen(0, '127.0.0.1'),
  );
  t.after(() => server.close());
  const first = await get(server.url);
  assert.deepEqual([first.status, first.headers['ratelimit']], [200, '"login";r=0;t=60']);
  const second = await get(server.url);
  assert.deepEqual([second.status, second.headers['retry-after']], [429, '60']);
  assert.equal(second.headers['cache-control'], 'no-store');
  assert.deepEqual(JSON.parse(second.body)['violated-policies'], ['login']);
});

test('keys of a Request', () => {
  const request = (headers) => new Request('http://localhost/', { headers });
  const secret = http.header('X-API-Key');
  assert.match(secret(request({ 'X-API-Key': 'secret' })), /^[0-9a-f]{32}$/);
  assert.equal(secret(request({}), '203.0.113.9'), 'anonymous:203.0.113.9');
  const key = http.clientIp({ trustedProxies: ['10.0.0.0/8'] });
  assert.equal(key(request({}), '203.0.113.9'), '203.0.113.9');
  assert.equal(key(request({ 'X-Forwarded-For': '203.0.113.7' }), '10.0.0.1'), '203.0.113.7');
  assert.throws(() => key(request({})), { code: 'key_invalid', message: /clientIp\(\)\(request, address\)/ });
  assert.throws(() => secret(request({})), { code: 'key_invalid' });
  const { headers } = request({ 'X-API-Key': 'secret' });
  assert.equal(secret({ headers: Object.fromEntries(headers), socket: null }), secret(request(headers)));
});

test('a Request without an address, behind proxies that are counted', () => {
  const request = (forwarded) =>
    new Request('http://localhost/', { headers: forwarded === undefined ? {} : { 'X-Forwarded-For': forwarded } });
  const key = http.clientIp({ trustedProxies: 1 });
  assert.equal(key(request('203.0.113.7')), '203.0.113.7');
  assert.equal(key(request('192.0.2.1, 2001:db8:1:2:3::4')), '2001:db8:1:2::/64');
  assert.equal(http.header('X-API-Key', { trustedProxies: 1 })(request('203.0.113.7')), 'anonymous:203.0.113.7');
  assert.equal(http.clientIp({ trustedProxies: 2 })(request('192.0.2.1, 203.0.113.7, 10.0.0.1')), '203.0.113.7');
  // An address that is known counts, as everywhere.
  assert.equal(key(request(), '203.0.113.9'), '203.0.113.9');
  // These cannot know the client of a `Request`. A request of node:http that has lost its address gets another error.
  const names = ['10.0.0.0/8', 'loopback', 'unix', 'anyone'].map((name) => http.clientIp({ trustedProxies: [name] }));
  for (const one of [http.clientIp(), http.clientIp({ trustedProxies: 0 }), ...names]) {
    assert.throws(() => one(request('203.0.113.7')), { code: 'key_invalid', message: /trustedProxies: 1/ });
  }
  for (const forwarded of [undefined, '', 'unknown'])
    assert.throws(() => key(request(forwarded)), { code: 'key_invalid' });
  const reset = { headers: { 'x-forwarded-for': '203.0.113.7' }, socket: {} };
  assert.throws(() => key(reset), { code: 'key_invalid', message: /does not know the address/ });
});

test('options of addresses', () => {
  for (const ipv6Prefix of ['64', true, [64], {}]) {
    assert.throws(() => http.clientIp({ ipv6Prefix }), {
      code: 'config_invalid',
      message: /ipv6Prefix is .*: it must be a/,
    });
  }
  for (const ipv6Prefix of [0, 129, 1.5, Number.NaN]) {
    assert.throws(() => http.clientIp({ ipv6Prefix }), { code: 'config_invalid', message: /ipv6Prefix/ });
  }
  const both = { trustedProxies: undefined, ipv6Prefix: undefined };
  assert.equal(http.clientIp(both)(new Request('http://localhost/'), '203.0.113.9'), '203.0.113.9');
});

test('a missing store is 503', async (t) => {
  const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError: 'closed' });
  t.after(() => limiter.close());
  const decision = await limiter.check('1/minute', 'alice');
  assert.equal(http.status(decision), 503);
  assert.equal(http.refusal(decision).status, 503);
});
