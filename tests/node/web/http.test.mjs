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

test('a missing store is 503', async (t) => {
  const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError: 'closed' });
  t.after(() => limiter.close());
  const decision = await limiter.check('1/minute', 'alice');
  assert.equal(http.status(decision), 503);
  assert.equal(http.refusal(decision).status, 503);
});
