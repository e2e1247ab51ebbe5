// Several processes with one Redis, or with one file, admit exactly the limit over HTTP. With memory each warns that they do not.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Limiter } from 'tidegate';
import { Servers } from '../../servers/servers.mjs';
import { get } from './client.mjs';
import { running, service } from './programs.mjs';

const PROCESSES = 3;
const REQUESTS = 600;
const LIMIT = 137;

test('processes admit exactly the limit together', async (t) => {
  const servers = await Servers.start();
  t.after(() => servers.close());
  const script = fileURLToPath(new URL('served.mjs', import.meta.url));
  for (const algorithm of ['fixed-window', 'sliding-window', 'sliding-log']) {
    const words = [script, servers.url, `${algorithm} ${LIMIT}/hour`];
    const urls = await Promise.all(Array.from({ length: PROCESSES }, () => service(t, process.execPath, words)));
    const agent = new Agent({ keepAlive: true, maxSockets: 30 });
    t.after(() => agent.destroy());
    const answers = await Promise.all(
      Array.from({ length: REQUESTS }, (_, request) => get(urls[request % PROCESSES], { agent })),
    );
    const admitted = answers.filter(({ status }) => status === 200);
    assert.equal(admitted.length, LIMIT, algorithm);
    assert.ok(answers.every(({ status }) => status === 200 || status === 429));
    // Each admitted request has a different number of units left.
    const left = admitted.map(({ headers }) => Number(headers['x-ratelimit-remaining'])).sort((a, b) => a - b);
    assert.deepEqual(
      left,
      Array.from({ length: LIMIT }, (_, index) => index),
    );
  }
});

/** The output of `cluster.mjs` for a store and a number of workers. */
async function ofCluster(t, store, workers, env = {}) {
  const script = fileURLToPath(new URL('cluster.mjs', import.meta.url));
  const { line } = running(t, process.execPath, [script, store, String(workers)], { NODE_NO_WARNINGS: '1', ...env });
  return JSON.parse(await line());
}

const [ADMITTED, NONE] = [{ admitted: 10, refused: 90 }, { warnings: [] }];

test('the workers of a cluster share a limit in a file', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  t.after(() => rmSync(folder, { recursive: true }));
  assert.deepEqual(await ofCluster(t, `file://${folder}/limits?max_bytes=4MB`, 2), { ...ADMITTED, ...NONE });
});

test('the workers of a cluster say nothing on a server', async (t) => {
  const servers = await Servers.start();
  t.after(() => servers.close());
  assert.deepEqual(await ofCluster(t, servers.url, 2), { ...ADMITTED, ...NONE });
});

test('each worker of a cluster says once that it counts for itself', async (t) => {
  const { admitted, warnings } = await ofCluster(t, 'memory://', 2);
  assert.equal(admitted, 20);
  assert.equal(new Set(warnings.map(([pid]) => pid)).size, 2, JSON.stringify(warnings));
  assert.equal(warnings.length, 2, JSON.stringify(warnings));
  for (const [, name, message] of warnings) {
    assert.equal(name, 'TidegateWarning');
    const [, named] = message.match(/one of the workers of a cluster.*store: '(file:\/\/\/\S*\/limits)'/) ?? [];
    // The user of the worker can use the file by this name.
    await new Limiter({ store: `${named}?max_bytes=1MB` }).close();
    rmSync(new URL(named), { force: true });
  }
});

test('calls that go out warn as web layers do', async () => {
  const program = `
    import { Limiter } from 'tidegate';
    import { pacedFetch } from 'tidegate/fetch';
    process.on('warning', ({ message }) => console.log(message));
    for (let made = 0; made < 2; made++) pacedFetch({ limiter: new Limiter(), policy: '9/s' });`;
  const env = { ...process.env, NODE_NO_WARNINGS: '1', pm_id: '3', exec_mode: 'fork_mode', instances: '2' };
  const cwd = fileURLToPath(new URL('../../..', import.meta.url));
  const words = ['--input-type=module', '--eval', program];
  const { stdout } = await promisify(execFile)(process.execPath, words, { env, cwd });
  assert.equal(stdout.match(/one of the processes of PM2/g)?.length, 1, stdout);
});

test('a process that is alone says nothing', async (t) => {
  assert.deepEqual(await ofCluster(t, 'memory://', 0), { ...ADMITTED, ...NONE });
});

test('processes of PM2 are known by their environment', async (t) => {
  const said = async (workers, env) =>
    (await ofCluster(t, 'memory://', workers, { pm_id: '3', ...env })).warnings.map(([, , message]) => message);
  for (const [instances, NODE_APP_INSTANCE] of ['20', '11']) {
    const messages = await said(0, { exec_mode: 'fork_mode', instances, NODE_APP_INSTANCE });
    assert.equal(messages.length, 1);
    assert.match(messages[0], /one of the processes of PM2/);
  }
  const one = { instances: '1', NODE_APP_INSTANCE: '0' };
  assert.deepEqual(await said(0, { exec_mode: 'fork_mode', ...one }), []);
  // A cluster of one process, which PM2 makes.
  assert.deepEqual(await said(1, { exec_mode: 'cluster_mode', ...one }), []);
  // A cluster that the application makes itself.
  assert.equal((await said(2, { exec_mode: 'fork_mode', ...one })).length, 2);
});
