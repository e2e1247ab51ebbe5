// Memory does not grow with the number of checks, nor with that of limiters.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { Servers } from '../../servers/servers.mjs';
import { run } from '../run_program.mjs';

let servers;
before(async () => {
  servers = await Servers.start('single');
});
after(() => servers?.close());

describe('a million checks leave nothing', () => {
  it('in memory', async () => {
    const grown = Number(await run('leak.mjs', 'memory://', '1000000'));
    assert.ok(grown < 32, `${grown} MiB`);
  });

  it('on Redis', async () => {
    const grown = Number(await run('leak.mjs', servers.url, '1000000'));
    assert.ok(grown < 32, `${grown} MiB`);
  });

  it('and limiters that are opened and closed leave nothing either', async () => {
    const grown = Number(await run('leak_limiters.mjs', servers.url));
    assert.ok(grown < 32, `${grown} MiB`);
  });
});
