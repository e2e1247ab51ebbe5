// The lines of refusals that a limiter may log.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import { ConfigError, Limiter, ManualClock } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

describe('logRefusals', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  async function linesOf(options, checks) {
    const lines = [];
    const logger = { warn: (line) => lines.push(line), info: () => {} };
    const limiter = new Limiter({ policies: { login: 'fixed-window 1/minute' }, logger, ...options });
    for (let count = 0; count < checks; count++) await limiter.check('login', 'alice');
    for (let turn = 0; lines.length < checks - 1 && turn < 50; turn++) await setTimeout(10);
    await limiter.close();
    return lines;
  }

  it('logs a line for each refusal', async () => {
    const lines = await linesOf({ logRefusals: true, clock: new ManualClock() }, 3);
    const line =
      'refused: policy "login", key "alice", limit "fixed-window 1/minute", retry after 60.000 s, answered by store';
    assert.deepEqual(lines, [line, line]);
  });

  it('sees the denials that are repeated without asking Redis too', async () => {
    const options = {
      store: servers.url,
      prefix: 'refusals',
      logRefusals: true,
      timeoutMs: 20_000,
      denyCacheMs: 60_000,
    };
    const lines = await linesOf(options, 4);
    assert.equal(lines.length, 3);
    assert.match(lines[0], /answered by store$/);
    assert.match(lines[2], /answered by deny-cache$/);
  });

  it('is off by default, and takes true or false', async () => {
    assert.deepEqual(await linesOf({}, 3), []);
    assert.deepEqual(await linesOf({ logRefusals: false }, 3), []);
    assert.throws(() => new Limiter({ logRefusals: 'yes' }), ConfigError);
  });

  it('writes a few lines of a flood', async () => {
    const begun = performance.now();
    const lines = await linesOf({ logRefusals: true }, 2_000);
    assert.ok(lines.length >= 1 && lines.length <= 10 * (2 + (performance.now() - begun) / 1_000), `${lines.length}`);
  });
});
