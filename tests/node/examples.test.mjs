// Every example without a server runs, and prints the expected lines.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';

it('the script admits, refuses, explains and admits again', () => {
  const path = fileURLToPath(new URL('../../examples/node_clock.mjs', import.meta.url));
  const lines = execFileSync(process.execPath, [path], { encoding: 'utf8' }).trim().split('\n');
  assert.match(lines[4], /^attempt 5: allowed, 0 left$/);
  assert.match(lines[5], /^attempt 6: denied by 5 in 3000 ms, again in \d+(\.\d+)? ms$/);
  assert.equal(lines[6], 'after waiting: allowed');
});
