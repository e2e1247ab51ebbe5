// Processes, threads and memory: a limiter keeps no process alive and leaves nothing behind.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Servers } from '../servers/servers.mjs';

const program = (name) => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

/** Runs a program to its end: what it printed. A program that does not end is killed, and the test fails. */
function run(name, ...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--expose-gc', program(name), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
    let output = '';
    child.stdout.on('data', (data) => {
      output += data;
    });
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(output.trim());
      else reject(new Error(`${name} ended with ${code ?? signal} and printed ${output}`));
    });
  });
}

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
