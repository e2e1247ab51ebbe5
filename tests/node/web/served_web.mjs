// One worker of `web.test.mjs`. A path names a policy, and the status or the way of the response.
//
//     node served_web.mjs STORE POLICIES

import process from 'node:process';
import * as srvx from 'srvx';
import { Limiter } from 'tidegate';
import { clientIp, rateLimit } from 'tidegate/web';

const [, , store, policies] = process.argv;
const limiter = new Limiter({ store, policies: JSON.parse(policies), timeoutMs: 20_000 });
const wordsOf = ({ url }) => new URL(url).pathname.split('/').slice(1);
const limit = rateLimit({
  limiter,
  key: clientIp(),
  policy: (request) => wordsOf(request)[0],
  refundWhen: (response) => response.status === 304,
  settle: (request, _response) => (wordsOf(request)[1] === 'dear' ? 3 : undefined),
});
const fetch = limit((request) => {
  const [, way] = wordsOf(request);
  if (way === 'throws') throw new Error('on purpose');
  if (way === '304') return new Response(null, { status: 304 });
  // A body without an end, which a client leaves.
  if (way === 'endless') return new Response(new ReadableStream({ start: (body) => body.enqueue(new Uint8Array(9)) }));
  return new Response('hello');
});
const error = () => new Response('failed', { status: 500 });
const server = srvx.serve({ fetch, error, port: 0, hostname: '127.0.0.1', silent: true });
await server.ready();
console.log(server.url);
