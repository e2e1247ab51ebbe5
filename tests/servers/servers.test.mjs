import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';

import { Servers } from './servers.mjs';

test('a server is started, controlled and removed', async () => {
  const servers = await Servers.start('single', { databases: 2 });
  try {
    assert.equal(servers.url, `redis://127.0.0.1:${servers.port()}/0`);
    await servers.command(['SET', 'k', 'v']);
    await Promise.all([servers.stop(), servers.cont()]);
    assert.equal(await servers.command(['GET', 'k']), 'v');
    await servers.kill();
    await servers.start();
    assert.equal(await servers.command(['EXISTS', 'k']), 0);
    await assert.rejects(servers.command(['NONSENSE']), /unknown command/);
  } finally {
    await servers.close();
  }
  assert.ok(!existsSync(servers.json.dir));
});

test('an error says why servers cannot start', async () => {
  await assert.rejects(Servers.start('ring'), /unknown kind 'ring'/);
});
