// `tidegate/trpc` with real servers and clients of tRPC.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createTRPCClient, httpBatchLink, httpLink } from '@trpc/client';
import { initTRPC } from '@trpc/server';
import { createHTTPServer } from '@trpc/server/adapters/standalone';
import { Limiter, ManualClock } from 'tidegate';
import { placedKey } from 'tidegate/http';
import { errorFormatter, limited } from 'tidegate/trpc';
import { z } from 'zod';
import { manyCalls, onEachStore } from './each_store.mjs';
import { until } from './web/client.mjs';
import { service } from './web/programs.mjs';

const t = initTRPC.context().create({ errorFormatter });

/** A client of a router, whose user is in a field. `requests` counts those over HTTP. */
async function serving(test, router, link = httpLink) {
  const requests = [];
  const createContext = ({ req }) => ({ user: req.headers['x-user'] });
  const server = createHTTPServer({ router, createContext });
  server.on('request', ({ url }) => requests.push(url));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}`;
  const client = (user) => createTRPCClient({ links: [link({ url, headers: { 'x-user': user } })] });
  return { client, requests };
}

const key = ({ ctx }) => ctx.user;
const limiting = (policies) => new Limiter({ policies, clock: new ManualClock() });

test('a call over the limit is TOO_MANY_REQUESTS, with the wait in its data', async (test) => {
  const limiter = limiting({ api: 'fixed-window 2/minute' });
  const router = t.router({ hello: t.procedure.use(limited({ limiter, policy: 'api', key })).query(() => 'hello') });
  const { client } = await serving(test, router);
  const alice = client('alice');
  assert.deepEqual([await alice.hello.query(), await alice.hello.query()], ['hello', 'hello']);
  const error = await alice.hello.query().catch((error) => error);
  assert.equal(error.message, 'Rate limit exceeded: wait 60 s, then try again');
  const { code, httpStatus, path, retryAfter } = error.data;
  assert.deepEqual([code, httpStatus, path, retryAfter], ['TOO_MANY_REQUESTS', 429, 'hello', 60]);
  assert.equal(error.shape.code, -32029);
  assert.equal(await client('bob').hello.query(), 'hello');
  // A caller of the server gets the Decision.
  const thrown = await t
    .createCallerFactory(router)({ user: 'alice' })
    .hello()
    .catch((error) => error);
  assert.equal(thrown.cause.decision.policy, 'api');
});

test('each call of a batch counts', async (test) => {
  const limiter = limiting({ api: 'fixed-window 3/minute' });
  const router = t.router({ hello: t.procedure.use(limited({ limiter, policy: 'api', key })).query(() => 'hello') });
  const { client, requests } = await serving(test, router, httpBatchLink);
  const alice = client('alice');
  const answers = await Promise.allSettled(Array.from({ length: 5 }, () => alice.hello.query()));
  assert.equal(requests.length, 1);
  assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 3);
  for (const { reason } of answers.filter(({ status }) => status === 'rejected')) {
    assert.equal(reason.data.retryAfter, 60);
  }
});

test('the input makes the cost, and the result may refund it', async (test) => {
  const limiter = limiting({ rows: 'fixed-window 10/minute' });
  const options = { limiter, policy: 'rows', key, refundWhen: (result) => !result.ok };
  const copy = t.procedure
    .input(z.object({ rows: z.number() }))
    .use(limited({ ...options, cost: ({ input }) => input.rows }))
    .mutation(({ input }) => {
      if (input.rows === 4) throw new Error('on purpose');
      return input.rows;
    });
  const { client } = await serving(test, t.router({ copy }));
  const left = async () => (await limiter.peek('rows', 'alice')).remaining;
  const alice = client('alice');
  assert.equal(await alice.copy.mutate({ rows: 3 }), 3);
  assert.equal(await left(), 7);
  await assert.rejects(alice.copy.mutate({ rows: 4 }), /on purpose/);
  await until('the cost of an error is given back', async () => (await left()) === 7);
  // More than ever fits: a wait does not help.
  const error = await alice.copy.mutate({ rows: 11 }).catch((error) => error);
  assert.deepEqual([error.data.code, error.data.retryAfter], ['TOO_MANY_REQUESTS', null]);
});

test('a notation counts for each procedure, and a name for all of them', async (test) => {
  const limiter = limiting({ api: 'fixed-window 3/minute' });
  const each = limited({ limiter, policy: 'fixed-window 1/minute', key });
  const all = limited({ limiter, policy: 'api', key });
  const hello = t.procedure.use(all).use(each);
  const router = t.router({ one: hello.query(() => 1), other: t.router({ deep: hello.query(() => 2) }) });
  const { client } = await serving(test, router);
  const alice = client('alice');
  assert.deepEqual([await alice.one.query(), await alice.other.deep.query()], [1, 2]);
  await assert.rejects(alice.one.query());
  assert.equal((await limiter.peek('api', 'alice')).remaining, 0);
  assert.equal((await limiter.peek('fixed-window 1/minute', placedKey('other.deep', 'alice'))).remaining, 0);
});

test('a hold lasts as long as the procedure', async (test) => {
  const limiter = limiting({ exports: 'concurrency 1' });
  const endings = [];
  const slow = t.procedure.use(limited({ limiter, policy: 'exports', key })).query(
    () =>
      new Promise((resolve, reject) => {
        endings.push({ resolve, reject });
      }),
  );
  const { client } = await serving(test, t.router({ slow }));
  const alice = client('alice');
  const free = async () => (await limiter.peek('exports', 'alice')).remaining === 1;
  for (const ending of ['resolve', 'reject']) {
    const call = alice.slow.query().catch((error) => error.message);
    await until('the procedure runs', async () => endings.length > 0);
    await assert.rejects(alice.slow.query(), { message: /Rate limit exceeded/ });
    endings.pop()[ending](ending === 'reject' ? new Error('on purpose') : 'done');
    assert.match(await call, /done|on purpose/);
    await until('the hold is given back', free);
  }
});

test('no procedure starts for a client that left while it was delayed', async (test) => {
  const limiter = limiting({ paced: 'leaky-bucket 1/s burst 5' });
  let calls = 0;
  const paced = t.procedure.use(limited({ limiter, policy: 'paced', key })).query(() => ++calls);
  const { client } = await serving(test, t.router({ paced }));
  const alice = client('alice');
  assert.equal(await alice.paced.query(), 1);
  test.mock.timers.enable({ apis: ['setTimeout'] });
  const controller = new AbortController();
  const left = alice.paced.query(undefined, { signal: controller.signal }).catch(() => 'left');
  await until('the second one is admitted', async () => (await limiter.peek('paced', 'alice')).remaining === 3);
  controller.abort();
  assert.equal(await left, 'left');
  assert.equal(calls, 1);
});

test('a missing store is SERVICE_UNAVAILABLE', async (test) => {
  for (const onStoreError of ['raise', 'closed']) {
    const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError, policies: { api: '5/minute' } });
    test.after(() => limiter.close());
    const router = t.router({ hello: t.procedure.use(limited({ limiter, policy: 'api', key })).query(() => 'hello') });
    const { client } = await serving(test, router);
    const error = await client('alice')
      .hello.query()
      .catch((error) => error);
    assert.deepEqual([error.data.code, error.data.retryAfter], ['SERVICE_UNAVAILABLE', 1], onStoreError);
  }
});

onEachStore('two workers admit exactly the limit', async (t, store) => {
  const script = fileURLToPath(new URL('served_trpc.mjs', import.meta.url));
  const words = [script, store, 'fixed-window 1234/hour'];
  const urls = await Promise.all([0, 1].map(() => service(t, process.execPath, words)));
  const clients = urls.map((url) => createTRPCClient({ links: [httpBatchLink({ url })] }));
  const { fulfilled, errors } = await manyCalls(clients.map((client) => () => client.count.mutate()));
  assert.deepEqual([fulfilled.length, errors.length], [1_234, 3_766]);
  for (const { data } of errors) assert.ok(data.code === 'TOO_MANY_REQUESTS' && data.retryAfter > 3_000);
});

test('a mistake is an error with the way out', async (test) => {
  const limiter = limiting({ api: '5/minute' });
  assert.throws(() => limited({ limiter, policy: 'api', kee: key }), /no option kee: did you mean key\?/);
  assert.throws(() => limited({ limiter, policy: 'appi', key }), { code: 'policy_unknown' });
  const router = t.router({ hello: t.procedure.use(limited({ limiter, policy: 'api' })).query(() => 'hello') });
  const { client } = await serving(test, router);
  const error = await client('alice')
    .hello.query()
    .catch((error) => error);
  assert.match(error.message, /tidegate\/trpc.*key: \(\{ ctx \}\) => ctx\.user\.id/);
  assert.deepEqual([error.data.code, error.data.retryAfter], ['INTERNAL_SERVER_ERROR', undefined]);
});
