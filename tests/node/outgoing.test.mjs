// `tidegate/outgoing` with the headers of any client. The dialects are vectors, in `tests/http/responses.json`.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { observations } from 'tidegate/outgoing';

const { mayTell } = createRequire(import.meta.url)('../../bindings-node/dist/response-reading.js');

const EXPECTED = [{ limit: 10, remaining: 0, resetAfterMs: 5_000, retryAfterMs: 7_000, scope: 'key' }];
const FIELDS = {
  'X-RateLimit-Limit': '10',
  'X-RateLimit-Remaining': '0',
  'X-RateLimit-Reset': '5',
  'Retry-After': '7',
};

test('headers of every client', async (t) => {
  const server = createServer((_, response) => response.writeHead(429, FIELDS).end());
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${server.address().port}/`;
  const fetched = await fetch(url);
  assert.deepEqual(observations(fetched.headers, { status: fetched.status }), EXPECTED);
  const incoming = await new Promise((resolve) => get(url, { agent: false }, resolve));
  incoming.resume();
  assert.deepEqual(observations(incoming.headers, { status: 429 }), EXPECTED);
  assert.deepEqual(observations(incoming.headersDistinct, { status: 429 }), EXPECTED);
  for (const headers of [FIELDS, new Map(Object.entries(FIELDS)), Object.entries(FIELDS)]) {
    assert.deepEqual(observations(headers, { status: 429 }), EXPECTED);
  }
});

test('a field that is a number, repeated or missing', () => {
  const headers = { 'Retry-After': 7, 'X-RateLimit-Remaining': ['5', '3'], Date: undefined };
  assert.deepEqual(observations(headers), [
    { retryAfterMs: 7_000, scope: 'key' },
    { remaining: 3, scope: 'key' },
  ]);
});

test('now is the default, and a body may be bytes', () => {
  const soon = new Date(Date.now() + 60_000).toISOString();
  const [{ resetAfterMs }] = observations({ 'X-RateLimit-Reset': soon });
  assert.ok(resetAfterMs <= 60_000);
  const body = new TextEncoder().encode('{"retry_after": 9}');
  assert.equal(observations({}, { status: 429, body })[0].retryAfterMs, 9_000);
  assert.equal(observations({}, { status: 429, body, maxLearnedWaitMs: 2_000 })[0].retryAfterMs, 2_000);
});

test('what cannot be read is an error that says so', () => {
  for (const wrong of [undefined, null, 'Retry-After: 7', 7, [7], ['ab']]) {
    assert.throws(() => observations(wrong), {
      code: 'config_invalid',
      message: /observations must get the headers of a response/,
    });
  }
  const refused = { dateMs: -1, status: '429', body: 7, maxLearnedWaitMs: Number.NaN, date: 0 };
  for (const [name, value] of [...Object.entries(refused), ['body', { retry_after: 9 }]]) {
    assert.throws(() => observations({}, { [name]: value }), { code: 'config_invalid', message: new RegExp(name) });
  }
});

test('no field that says something is passed over', () => {
  const { cases } = JSON.parse(readFileSync(new URL('../http/responses.json', import.meta.url), 'utf8'));
  const telling = cases.filter(({ response, observations }) => response.headers?.length > 0 && observations.length > 0);
  // The client reads every field and the body of a refusal anyway.
  const served = telling.filter(({ response }) => !(response.status >= 400));
  assert.ok(served.length >= 20, `only ${served.length} responses`);
  for (const { name, response } of served) {
    assert.ok(mayTell(response.headers), name);
    assert.ok(mayTell(new Headers(response.headers)), name);
    assert.ok(mayTell(Object.fromEntries(response.headers)), name);
  }
  const silent = { date: 'Mon, 01 Jan 2024 00:00:00 GMT', 'content-type': 'text/plain', 'x-ratelimited': '1' };
  assert.ok(!mayTell(silent));
});
