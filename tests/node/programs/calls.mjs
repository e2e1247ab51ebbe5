// Tests `tidegate/fetch` with the fetch of each runtime.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import process from 'node:process';
import { Limiter, ManualClock } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';

const asked = [];
const server = createServer((request, response) => {
  asked.push(`${request.method} ${request.url} ${request.headers.authorization ?? ''}`.trim());
  if (request.url === '/moved') return response.writeHead(302, { Location: '/there' }).end();
  if (request.url === '/busy' && asked.length === 1) return response.writeHead(429, { 'Retry-After': '0' }).end();
  if (request.url === '/refused') {
    response.writeHead(403, { 'Content-Type': 'application/json' });
    return response.end('{"message":"no"}');
  }
  response.write('hel');
  setTimeout(() => response.end('lo'), 5);
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const origin = `http://127.0.0.1:${server.address().port}`;
const limiter = new Limiter({ clock: new ManualClock() });
const left = async (policy, key = origin) =>
  (await limiter.peek(limiter.policy(policy).paced(), `out:${key}`)).limits[0].remaining;
const until = async (holds) => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 2));
};

const once2 = pacedFetch({ limiter, policy: 'fixed-window 2/hour', timeoutMs: 0 });
const moved = await once2(`${origin}/moved`, { method: 'POST', body: 'text', headers: { Authorization: 'secret' } });
assert.deepEqual([moved.status, moved.url, moved.redirected], [200, `${origin}/there`, true]);
assert.equal(await moved.text(), 'hello');
assert.deepEqual(asked.splice(0), ['POST /moved secret', 'GET /there secret']);
await assert.rejects(once2(origin), { code: 'rate_limited' });
const refused = await pacedFetch({ limiter, policy: 'fixed-window 2/hour', timeoutMs: 0, respond: true })(origin);
assert.deepEqual([refused.status, refused.headers.get('x-should-retry')], [429, 'false']);
assert.equal(JSON.parse(await refused.text()).status, 429);
assert.equal(asked.length, 0);

const held = pacedFetch({ limiter, policy: 'concurrency 1' });
const stream = await held(`${origin}/stream`);
assert.equal(await left('concurrency 1'), 0);
const copy = stream.clone();
assert.deepEqual([await stream.text(), await copy.text(), copy.url], ['hello', 'hello', `${origin}/stream`]);
await until(async () => (await left('concurrency 1')) === 1);
await (await held(`${origin}/stream`)).body.cancel();
await until(async () => (await left('concurrency 1')) === 1);

const chunks = [];
const settle = () => ({ feed: (chunk) => chunks.push(new TextDecoder().decode(chunk)), end: () => 7 });
const settled = pacedFetch({ limiter, policy: '90/hour', settle });
assert.equal(await (await settled(origin)).text(), 'hello');
assert.equal(chunks.join(''), 'hello');
await until(async () => (await left('90/hour')) === 83);

asked.length = 0;
const again = pacedFetch({ limiter, policy: '80/hour', retries: 1, learn: false });
assert.equal(await (await again(`${origin}/busy`)).text(), 'hello');
assert.deepEqual([asked.length, await left('80/hour')], [2, 78]);
assert.equal(await (await again(`${origin}/refused`)).text(), '{"message":"no"}');

server.closeAllConnections();
server.close();
const gone = createServer().listen(0, '127.0.0.1');
await once(gone, 'listening');
const nowhere = `http://127.0.0.1:${gone.address().port}`;
await new Promise((resolve) => gone.close(resolve));
await assert.rejects(again(nowhere));
assert.equal(await left('80/hour', nowhere), 80, 'nothing was sent');
const waiting = pacedFetch({ limiter, policy: 'fixed-window 2/hour' });
const reason = new Error('enough');
await assert.rejects(waiting(origin, { signal: AbortSignal.abort(reason) }), reason);
console.log('done');
process.exit();
