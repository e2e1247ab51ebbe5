// The command `tidegate` of the package: its arguments, its exit codes, and how it ends.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';

const command = fileURLToPath(new URL('../../bindings-node/dist/command.js', import.meta.url));
const { TIDEGATE_STORE: _, ...env } = process.env;

const run = (...args) =>
  new Promise((resolve) => {
    execFile(process.execPath, [command, ...args], { env }, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, stdout, stderr });
    });
  });

it('takes arguments, writes and ends with a code', async () => {
  const allowed = await run('check', 'fixed-window 5/minute', 'älice 😀', '--json');
  assert.equal(allowed.code, 0);
  assert.equal(JSON.parse(allowed.stdout).key, 'älice 😀');
  assert.equal((await run('check', '0/minute', 'alice')).code, 1);
  const wrong = await run('check', '20/minuet', 'alice');
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /policy_invalid/);
});

it('ends by an interrupt', async () => {
  const child = spawn(process.execPath, [command, 'demo'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  // It runs, and waits for seconds in the middle.
  await once(child.stdout, 'data');
  child.kill('SIGINT');
  const [code, signal] = await ended;
  assert.ok(signal === 'SIGINT' || code === 130, `${code} ${signal}`);
});
