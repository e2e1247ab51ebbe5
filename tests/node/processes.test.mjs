// Processes, threads and memory: a limiter keeps nobody alive and leaves nothing behind.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Servers } from '../servers/servers.mjs';

const program = (name) => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

/** Runs a program to its end; what it printed. One that does not end is ended, and fails. */
function run(name, ...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--expose-gc', program(name), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
    let said = '';
    child.stdout.on('data', (data) => {
      said += data;
    });
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(said.trim());
      else reject(new Error(`${name} ended with ${code ?? signal} and said ${said}`));
    });
  });
}

let servers;
before(async () => {
  servers = await Servers.start('single');
});
after(() => servers?.close());

describe('a process ends', () => {
  it('with an open limiter, when it has its answers', async () => {
    assert.equal(await run('exit.mjs', 'memory://'), 'true');
    assert.equal(await run('exit.mjs', servers.url), 'true');
  });

  it('with a hold that nobody gave back', async () => {
    assert.equal(await run('exit_hold.mjs', servers.url), 'held');
  });

  it('in the middle of calls', async () => {
    assert.equal(await run('exit_now.mjs', servers.url), 'going');
  });

  it('by an error of its own, not by one of ours', async () => {
    await assert.rejects(run('exit.mjs', 'mysql://'), /ended with 1/);
  });
});

describe('several at once', () => {
  it('worker threads share a limit, also when some are terminated', async () => {
    assert.equal(await run('workers.mjs', servers.url), '100');
  });

  it('processes of a cluster share a limit', async () => {
    assert.equal(await run('cluster.mjs', servers.url), '100');
  });
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

  it('nor do limiters that come and go', async () => {
    const grown = Number(await run('leak_limiters.mjs', servers.url));
    assert.ok(grown < 32, `${grown} MiB`);
  });
});
