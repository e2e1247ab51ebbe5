// Tests that run with a file that processes share, and with a server.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Servers } from '../servers/servers.mjs';

/** Defines a test for each store that several processes can share. `run` gets its URL. */
export function onEachStore(name, run) {
  test(`${name} on a file`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
    t.after(() => rmSync(folder, { recursive: true }));
    await run(t, `file://${folder}/limits?max_bytes=4MB`);
  });

  test(`${name} on a server`, async (t) => {
    const servers = await Servers.start();
    t.after(() => servers.close());
    await run(t, servers.url);
  });
}

/** Makes 5,000 calls through two workers, 100 at a time. Returns the numbers of admitted ones and of errors, and the errors. */
export async function manyCalls(workers) {
  const [fulfilled, errors] = [[], []];
  for (let round = 0; round < 50; round++) {
    const calls = workers.flatMap((call) => Array.from({ length: 100 / workers.length }, () => call()));
    for (const { value, reason } of await Promise.allSettled(calls)) {
      if (reason === undefined) fulfilled.push(value);
      else errors.push(reason);
    }
  }
  return { fulfilled, errors };
}
