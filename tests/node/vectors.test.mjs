// Every vector, over memory, over a file and over Redis, and some over PostgreSQL.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { Servers } from '../servers/servers.mjs';
import { cases, run } from './vectors.mjs';

/** Cases that are not run, each with its reason. There should be none. */
const SKIPPED = [];

const all = cases().filter((one) => !SKIPPED.includes(one.name));

describe('vectors in memory', () => {
  for (const one of all) it(one.name, () => run(one, 'memory://', 'tg'));
});

describe('vectors in a file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  after(() => rmSync(folder, { recursive: true }));
  for (const [index, one] of all.entries())
    it(one.name, () => run(one, `file://${folder}/limits?max_bytes=8MB`, `v${index}`));
});

describe('vectors on Redis', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  for (const [index, one] of all.entries()) {
    it(one.name, async () => {
      const began = performance.now();
      try {
        await run(one, servers.url, `v${index}`);
      } catch (error) {
        // Keys in Redis expire in real time, and on a busy machine a case may take longer than they live.
        if (performance.now() - began < 250) throw error;
        await run(one, servers.url, `again${index}`);
      }
    });
  }
});

describe('vectors on PostgreSQL', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('postgres');
  });
  after(() => servers?.close());

  // Everything behind its URL is the core's own, whose tests run all cases there, so an eighth shows that both meet.
  for (const [index, one] of all.entries())
    if (process.env.TIDEGATE_FULL || index % 8 === 0)
      it(one.name, () => run(one, `${servers.url}?create=yes`, `v${index}`));
});

it('there are vectors', () => assert.ok(all.length > 100));
