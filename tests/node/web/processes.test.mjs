// Several processes with one Redis admit exactly the limit over HTTP.

import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Servers } from '../../servers/servers.mjs';
import { get } from './client.mjs';
import { service } from './programs.mjs';

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
