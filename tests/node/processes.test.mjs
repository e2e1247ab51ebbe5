// Processes and threads: a limiter keeps no process alive and leaves nothing behind.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { Servers } from '../servers/servers.mjs';
import { run } from './run_program.mjs';

let servers;
before(async () => {
  servers = await Servers.start('single');
});
after(() => servers?.close());

describe('a process ends', () => {
  it('with an open limiter, when its calls are answered', async () => {
    assert.equal(await run('exit.mjs', 'memory://'), 'true');
    assert.equal(await run('exit.mjs', servers.url), 'true');
  });

  it('with a hold that was not given back', async () => {
    assert.equal(await run('exit_hold.mjs', servers.url), 'held');
  });

  it('while calls wait', async () => {
    assert.equal(await run('exit_now.mjs', servers.url), 'going');
  });

  it('with status 1 by an error of the program', async () => {
    await assert.rejects(run('exit.mjs', 'mysql://'), /ended with 1/);
  });
});

describe('a program of tests', () => {
  for (const when of ['before', 'after']) {
    for (const how of ['clock', 'none']) {
      it(`may have fakes in the place of timers, from ${when} the library was loaded, with the clock ${how}`, async () => {
        assert.equal(await run('fake_timers.mjs', servers.url, when, how), 'admitted admitted admitted');
      });
    }
  }

  it('may have the fakes of Jest and of Vitest in the place of every clock', async () => {
    const each = 'admitted denied';
    assert.equal(await run('fake_clock.mjs', servers.url), `${each}, ${each}, ${each}, ${each}, true`);
  });

  it('says on an old Node what it needs', async () => {
    const says = 'config_invalid: tidegate needs Node 20 or newer: this is Node 18.20.4';
    assert.equal(await run('old_node.cjs'), says);
  });
});

describe('several at once', () => {
  it('worker threads share a limit, even when some are terminated', async () => {
    assert.equal(await run('workers.mjs', servers.url), '100');
  });

  it('processes of a cluster share a limit', async () => {
    assert.equal(await run('cluster.mjs', servers.url), '100');
  });
});

describe('workers that end while callers wait in them', { skip: process.platform !== 'linux' }, () => {
  const left = async (...args) => JSON.parse(await run('workers_waiting.mjs', ...args));
  const nothing = { threads: 0, files: 0, taken: 0, held: 0 };

  for (const ending of ['terminate', 'exit']) {
    it(`leave nothing in memory, by ${ending}`, async () => {
      assert.deepEqual(await left('memory://', ending), nothing);
    });

    it(`leave nothing on Redis, by ${ending}`, async () => {
      assert.deepEqual(await left(servers.url, ending), nothing);
    });
  }
});
