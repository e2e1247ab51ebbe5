// Requests from clients without an address: a connection that was reset, and a Unix domain socket.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { link, mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { connect, createServer as createNetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as express from 'tidegate/express';
import { until } from './client.mjs';
import { forEachAdapter, limiting } from './each_adapter.mjs';

const LIMIT = 5;
const RESETS = 100;

/** Sends a request and resets its connection. The server reads the request, and its client has no address any more. */
async function resetAtOnce(port, client) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  const closed = once(socket, 'close');
  socket.write(`GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: ${client}\r\n\r\n`);
  socket.resetAndDestroy();
  await closed;
}

forEachAdapter(({ name, adapter, serving }) => {
  test('connections that are reset at once do not pass a limit', async (t) => {
    const { limiter } = limiting({ login: `${LIMIT}/hour` });
    const ends = { admitted: 0, denied: 0 };
    const errors = [];
    const url = await serving(t, {
      limits: [
        {
          limiter,
          policy: 'login',
          key: adapter.clientIp({ trustedProxies: ['unix'] }),
          onDenied: () => {
            ends.denied++;
          },
        },
      ],
      handler: async () => {
        ends.admitted++;
        return { body: 'hello' };
      },
      failed: (error) => errors.push(error.code),
    });
    for (let client = 0; client < RESETS; client++) await resetAtOnce(new URL(url).port, `198.51.100.${client}`);
    // Nest answers errors itself, so they are not seen here. A server may notice the reset before it reads the request.
    const arrived = () => ends.admitted + ends.denied + errors.length;
    if (!name.startsWith('Nest')) await until('most requests have arrived', () => arrived() > RESETS / 2);
    assert.ok(ends.admitted <= LIMIT, `${ends.admitted} were admitted`);
    assert.ok(errors.every((code) => code === 'key_invalid'));
  });
});

/** A server in a separate process, which answers with the keys of its requests: with and without trust in Unix domain sockets. */
const SERVER = `
  import { createServer } from 'node:http';
  import { clientIp } from 'tidegate/express';
  const keys = [clientIp({ trustedProxies: ['unix'] }), clientIp()];
  const server = createServer((request, response) => response.end(JSON.stringify(keys.map((key) => key(request)))));
  server.listen(JSON.parse(process.env.LISTEN), () => console.log('listening'));
`;
const root = new URL('../../../', import.meta.url);

/** The keys of two requests through a Unix domain socket. */
async function keysOver(t, path, listen, stdio) {
  const server = spawn(process.execPath, ['--no-warnings', '--input-type=module', '-e', SERVER], {
    cwd: root,
    env: { ...process.env, LISTEN: JSON.stringify(listen) },
    stdio: ['ignore', 'pipe', 'inherit', ...stdio],
  });
  t.after(() => server.kill());
  await once(server.stdout, 'data');
  const keys = [];
  for (const client of ['198.51.100.1', '198.51.100.2']) {
    const sent = request({ socketPath: path, headers: { 'x-forwarded-for': client }, agent: false });
    sent.end();
    const [answer] = await once(sent, 'response');
    keys.push(...JSON.parse((await answer.setEncoding('utf8').toArray()).join('')));
  }
  return keys;
}

async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), 'tidegate-'));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

test("a Unix domain socket is known by the server's address", async (t) => {
  const path = join(await folder(t), 's');
  assert.deepEqual(await keysOver(t, path, path, []), ['198.51.100.1', 'unix', '198.51.100.2', 'unix']);
});

test('a Unix domain socket that the server got as a descriptor has no address, but pipes', async (t) => {
  const path = join(await folder(t), 's');
  const other = `${path}2`;
  const holder = createNetServer();
  holder.listen(path);
  await once(holder, 'listening');
  // The end of the holder removes its path, so the socket gets a second one.
  await link(path, other);
  const stdio = [holder._handle.fd];
  const keys = keysOver(t, other, { fd: 3 }, stdio);
  holder.close();
  assert.deepEqual(await keys, ['198.51.100.1', 'unix', '198.51.100.2', 'unix']);
});

test('a request without a socket, or with one that says nothing, is refused', () => {
  for (const socket of [
    undefined,
    null,
    {},
    { remoteAddress: '' },
    { server: {} },
    { server: { address: () => null } },
  ]) {
    for (const trustedProxies of [[], ['unix'], ['anyone']]) {
      const key = express.clientIp({ trustedProxies });
      const asked = () => key({ headers: { 'x-forwarded-for': '198.51.100.1' }, socket });
      assert.throws(asked, { name: 'KeyInvalid', code: 'key_invalid' });
    }
  }
});

test('a key that needs no address answers without one', () => {
  const key = express.header('x-api-key', { trustedProxies: ['unix'] });
  assert.match(key({ headers: { 'x-api-key': 'k' }, socket: {} }), /^[0-9a-f]{32}$/);
  assert.throws(() => key({ headers: {}, socket: {} }), { code: 'key_invalid' });
});

test('the refusal is reported once', () => {
  // This is a separate process, because this one has reported it.
  const program = `
    import { clientIp } from 'tidegate/express';
    const key = clientIp();
    for (let times = 0; times < 50; times++) try { key({ headers: {}, socket: {} }); } catch {}
    process.on('warning', ({ name, message }) => console.log(name, message));
  `;
  const said = execFileSync(process.execPath, ['--no-warnings', '--input-type=module', '-e', program], { cwd: root });
  const lines = said.toString().trim().split('\n');
  assert.equal(lines.length, 1, said.toString());
  assert.match(lines[0], /^TidegateWarning a request was refused.*Unix domain socket/);
});
