// `tidegate/mcp` with real servers and clients of both versions of the SDK, over stdio and streamable HTTP.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as client2 from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { header, limited } from 'tidegate/mcp';
import { manyCalls, onEachStore } from './each_store.mjs';
import { limiting, serverOf, servingHttp } from './mcp_server.mjs';
import { until } from './web/client.mjs';

const program = fileURLToPath(new URL('mcp_server.mjs', import.meta.url));
const CLIENTS = {
  1: { Client: Client1, Stdio: Stdio1, Http: Http1 },
  2: { Client: client2.Client, Stdio: Stdio2, Http: client2.StreamableHTTPClientTransport },
};

async function connected(t, version, transport) {
  const client = new CLIENTS[version].Client({ name: 'test', version: '1.0.0' });
  await client.connect(transport);
  t.after(() => client.close());
  return client;
}

const overStdio = (t, version) =>
  connected(t, version, new CLIENTS[version].Stdio({ command: process.execPath, args: [program, String(version)] }));

async function overHttp(t, version, options, headers = {}) {
  const { url, close } = await servingHttp(version, options);
  t.after(close);
  return (more = {}) =>
    connected(t, version, new CLIENTS[version].Http(url, { requestInit: { headers: { ...headers, ...more } } }));
}

const call = (client, name, args = {}) => client.callTool({ name, arguments: args });
const said = async (answer) => (await answer).content[0].text;
const refusal = (answer) =>
  answer.then(
    () => assert.fail('not refused'),
    (error) => error,
  );

/** The same calls over any transport. */
async function uses(client) {
  // Lists and pings are free.
  for (let sent = 0; sent < 5; sent++) {
    await client.ping();
    assert.equal((await client.listTools()).tools.length, 5);
  }
  assert.equal(await said(call(client, 'echo', { said: 'one' })), 'one');
  assert.equal(await said(call(client, 'echo', { said: 'two' })), 'two');
  const error = await refusal(call(client, 'echo', { said: 'three' }));
  assert.match(error.message, /Rate limit exceeded: wait 60 s, then try again/);
  assert.deepEqual([error.code, error.data.retryAfter], [-32029, 60]);
  assert.deepEqual(error.data['violated-policies'], ['calls']);
  // The arguments make the cost.
  assert.equal(await said(call(client, 'export', { rows: 8 })), '8');
  assert.equal((await refusal(call(client, 'export', { rows: 3 }))).data.retryAfter, 60);
  assert.equal((await refusal(call(client, 'export', { rows: 11 }))).data.retryAfter, null);
  assert.equal(await said(call(client, 'export', { rows: 2 })), '2');
  // A slow tool holds its unit until it has ended.
  for (let run = 0; run < 2; run++) {
    const both = [call(client, 'slow'), call(client, 'slow')];
    const refused = await Promise.any(both.map(refusal));
    assert.match(refused.message, /Rate limit exceeded/);
    await call(client, 'finish');
    const ended = await Promise.allSettled(both);
    assert.deepEqual(ended.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
  }
}

for (const version of [1, 2]) {
  describe(`version ${version} of the SDK`, () => {
    test('over stdio there is one client', async (t) => {
      await uses(await overStdio(t, version));
    });

    test('over streamable HTTP a client is the authenticated one, whatever its session', async (t) => {
      const client = await overHttp(t, version, { limiter: limiting() });
      const alice = await client({ 'x-client': 'alice' });
      await uses(alice);
      const again = await client({ 'x-client': 'alice' });
      assert.equal((await refusal(call(again, 'echo', { said: 'hello' }))).code, -32029);
      const bob = await client({ 'x-client': 'bob' });
      assert.equal(await said(call(bob, 'echo', { said: 'hello' })), 'hello');
    });

    test('without authentication a key is needed: a field, a session, a tool', async (t) => {
      const [stranger] = [await (await overHttp(t, version, { limiter: limiting() }))()];
      const error = await refusal(call(stranger, 'echo', { said: 'hello' }));
      assert.match(error.message, /tidegate\/mcp.*not authenticated.*header\('X-API-Key'\)/);
      const keys = [header('X-API-Key', { trustedProxies: 1 }), ({ session }) => session, ({ tool }) => tool];
      for (const [index, key] of keys.entries()) {
        const client = await overHttp(t, version, { limiter: limiting(), key }, { 'x-api-key': 'secret' });
        const [one, other] = [await client(), await client()];
        for (let sent = 0; sent < 2; sent++) assert.equal(await said(call(one, 'echo', { said: 'hello' })), 'hello');
        assert.equal((await refusal(call(one, 'echo', { said: 'hello' }))).code, -32029);
        const answer = call(other, 'echo', { said: 'hello' });
        if (index === 1) assert.equal(await said(answer), 'hello');
        else assert.equal((await refusal(answer)).code, -32029);
      }
    });

    onEachStore('two workers admit exactly the limit', async (t, store) => {
      const args = [program, String(version), store];
      const transport = () => new CLIENTS[version].Stdio({ command: process.execPath, args });
      const clients = await Promise.all([0, 1].map(() => connected(t, version, transport())));
      const { fulfilled, errors } = await manyCalls(clients.map((one) => () => call(one, 'count')));
      assert.deepEqual([fulfilled.length, errors.length], [1_234, 3_766]);
      for (const { code, data } of errors) assert.ok(code === -32029 && data.retryAfter > 3_000);
    });

    test('a call that the client cancels ends its hold with the tool', async (t) => {
      const limiter = limiting();
      const client = await (await overHttp(t, version, { limiter }, { 'x-client': 'alice' }))();
      const free = async () => (await limiter.peek('slow', 'alice')).remaining === 1;
      const controller = new AbortController();
      const options = { signal: controller.signal };
      const slow =
        version === 1
          ? client.callTool({ name: 'slow', arguments: {} }, undefined, options)
          : client.callTool({ name: 'slow', arguments: {} }, options);
      await until('the tool runs', async () => !(await free()));
      controller.abort();
      await assert.rejects(slow);
      assert.equal(await free(), false);
      await call(client, 'finish');
      await until('the hold is given back', free);
    });

    test('the limits of a tool are asked together with the policy of all tools', async (t) => {
      const limiter = limiting();
      const rows = { policy: 'rows', cost: ({ args }) => args.rows };
      const all = [{ policy: 'fixed-window 4/minute' }, { policy: () => 'fixed-window 4/minute' }];
      const [plain, chosen] = await Promise.all(
        all.map((policy) =>
          overHttp(t, version, {
            limiter,
            key: () => `version ${version}`,
            ...policy,
            tools: { export: rows, finish: false },
          }),
        ),
      );
      for (const [index, connect] of [plain, chosen].entries()) {
        const client = await connect();
        await limiter.clearAll();
        assert.equal(await said(call(client, 'echo', { said: 'one' })), 'one', String(index));
        assert.equal(await said(call(client, 'export', { rows: 8 })), '8');
        // Its own limit refuses, and the policy of all tools is not charged.
        const own = await refusal(call(client, 'export', { rows: 8 }));
        assert.deepEqual(own.data['violated-policies'], ['rows']);
        assert.equal(await said(call(client, 'export', { rows: 1 })), '1');
        assert.equal(await said(call(client, 'count')), 'counted');
        const shared = await refusal(call(client, 'export', { rows: 1 }));
        assert.deepEqual(shared.data['violated-policies'], ['fixed-window 4/minute']);
        assert.equal((await refusal(call(client, 'count'))).data.retryAfter, 60);
        assert.equal(await said(call(client, 'finish')), 'finished', 'a tool with false has no limit');
      }
    });

    test('onDenied may return a result of the tool in place of the error', async (t) => {
      const onDenied = ({ tool }, { retryAfterMs }) => ({
        isError: true,
        content: [{ type: 'text', text: `${tool}: wait ${retryAfterMs / 1000} s` }],
      });
      const options = { limiter: limiting(), key: () => 'all', policy: 'fixed-window 1/minute', onDenied };
      const client = await (await overHttp(t, version, options))();
      assert.equal(await said(call(client, 'echo', { said: 'hello' })), 'hello');
      assert.equal(await said(call(client, 'echo', { said: 'hello' })), 'echo: wait 60 s');
    });
  });
}

test('a mistake is an error where it is written', () => {
  const limiter = limiting();
  assert.throws(() => serverOf(1, { limiter, tool: {} }), { code: 'config_invalid', message: /did you mean tools\?/ });
  assert.throws(() => serverOf(2, { limiter, policy: 'call' }), { code: 'policy_unknown' });
  assert.throws(() => serverOf(2, { limiter, tools: { echo: { polcy: 'calls' } } }), /did you mean policy\?/);
  assert.throws(() => limited({}, { limiter, policy: 'calls' }), { code: 'config_invalid', message: /McpServer/ });
});
