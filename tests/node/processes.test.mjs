// Processes and threads: a limiter keeps no process alive and leaves nothing behind.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { Limiter } from 'tidegate';
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
  for (const kind of ['Redis', 'a file']) {
    it(`worker threads share a limit on ${kind}, even when some are terminated`, async (t) => {
      assert.equal(await run('workers.mjs', storeOf(kind, t)), '100');
    });

    it(`processes of a cluster share a limit on ${kind}`, async (t) => {
      assert.equal(await run('cluster.mjs', storeOf(kind, t)), '100');
    });

    it(`two limiters of one process are two users of ${kind}`, async (t) => {
      const store = storeOf(kind, t);
      const limiters = [1, 2].map(() => new Limiter({ store, prefix: `two${process.pid}`, timeoutMs: 20_000 }));
      const calls = Array.from({ length: 200 }, (_, call) => limiters[call % 2].check('fixed-window 100/hour', 'all'));
      const decisions = await Promise.all(calls);
      assert.equal(decisions.filter(({ allowed }) => allowed).length, 100);
      await limiters[0].close();
      assert.equal((await limiters[1].check('fixed-window 100/hour', 'all')).allowed, false);
      await limiters[1].close();
    });
  }
});

/** A store that processes share: the server of these tests, or a file of this test. */
function storeOf(kind, t) {
  if (kind === 'Redis') return servers.url;
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return `file://${folder}/limits?max_bytes=4MB`;
}

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
