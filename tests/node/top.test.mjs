// If `TIDEGATE_TOP` is set, a process publishes its denials, also those that Node would repeat by itself.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { Servers } from '../servers/servers.mjs';

const PROGRAM = `
  import { Limiter } from 'tidegate';
  const limiter = new Limiter({ store: process.argv[1], policies: { login: 'fixed-window 1/hour' }, timeoutMs: 10_000 });
  for (let call = 0; call < 4; call += 1) await limiter.check('login', 'alice');
  process.stdin.on('end', () => limiter.close()).resume();
`;

test('denials that Node repeats by itself are published too', async () => {
  const servers = await Servers.start('single');
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-top-'));
  const program = spawn(process.execPath, ['--input-type=module', '--eval', PROGRAM, servers.url], {
    cwd: new URL('../..', import.meta.url),
    env: { ...process.env, TIDEGATE_TOP: folder },
    stdio: ['pipe', 'inherit', 'inherit'],
  });
  try {
    let denied = [];
    // A file is written once a second.
    while (denied[0]?.denials !== 3) {
      await setTimeout(20);
      const files = (await readdir(folder)).filter((name) => name.endsWith('.json'));
      denied = files.length === 0 ? [] : JSON.parse(await readFile(join(folder, files[0]), 'utf8')).denied;
    }
    assert.deepEqual(denied, [{ policy: 'login', key: 'alice', denials: 3 }]);
  } finally {
    program.stdin.end();
    await once(program, 'exit');
    await servers.close();
    await rm(folder, { recursive: true });
  }
});
