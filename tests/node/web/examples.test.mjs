// Every example runs and does what its comments promise.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Servers } from '../../servers/servers.mjs';
import { get } from './client.mjs';
import { example, python, running, service } from './programs.mjs';

for (const name of ['express', 'fastify', 'hono', 'nest']) {
  test(`node_${name}.mjs`, async (t) => {
    const url = await service(t, process.execPath, [example(`node_${name}.mjs`)]);
    assert.equal((await get(`${url}/health`)).headers.ratelimit, undefined);
    const logins = [];
    for (let login = 0; login < 6; login++) logins.push((await get(`${url}/login`, { method: 'POST' })).status);
    assert.deepEqual(logins, [...Array(5).fill(name === 'nest' ? 201 : 200), 429]);
    if (name === 'express') {
      const things = await get(`${url}/api/things`, { headers: { 'X-API-Key': 'secret' } });
      assert.equal(JSON.parse(things.body).left, 19);
      assert.match((await get(`${url}/export`)).body, /line 999\n$/);
    } else {
      assert.match((await get(url)).headers['ratelimit-policy'], /^"all";q=100;w=60$/);
    }
  });
}

test('node_script.mjs', async (t) => {
  const { line, ended } = running(t, process.execPath, [example('node_script.mjs')]);
  for (const expected of [
    'mail 1 is sent',
    'mail 2 is sent',
    'mail 3 is sent',
    'mail 4 has to wait',
    'three calls are made',
    'one export at a time',
    '960 tokens are left',
  ]) {
    assert.equal(await line(), expected);
  }
  assert.equal(await ended, 0);
});

const flask = python(['tidegate.flask']);
test('one limit: an Express and a Flask service share it', { skip: flask.missing }, async (t) => {
  const servers = await Servers.start();
  t.after(() => servers.close());
  const env = { TIDEGATE_STORE: servers.url };
  const services = await Promise.all([
    service(t, process.execPath, [example('one_limit/service.mjs')], env),
    service(t, flask.program, [example('one_limit/service.py')], env),
  ]);
  const statuses = [];
  for (let login = 0; login < 12; login++) {
    statuses.push((await get(`${services[login % 2]}/login`, { method: 'POST' })).status);
  }
  assert.deepEqual(statuses, [...Array(10).fill(200), 429, 429]);
});
