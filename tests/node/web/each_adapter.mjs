// A server of each adapter, for the tests that all adapters pass over real HTTP.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { describe } from 'node:test';
import { parseList } from 'structured-headers';
import { Limiter, ManualClock } from 'tidegate';
import { adapters } from './adapters.mjs';
import { get, settled, until } from './client.mjs';

/** The time at which the clocks of these tests begin. */
export const START = 1_704_067_200_000;

const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
process.on('exit', () => rmSync(folder, { recursive: true }));
let made = 0;

/** A limiter with a manual clock: every second one in memory, the others in a file that processes share. */
export function limiting(policies = {}, options = {}) {
  const clock = new ManualClock(START);
  const store = ++made % 2 ? 'memory://' : `file://${folder}/limits?max_bytes=8MB`;
  return { clock, limiter: new Limiter({ store, prefix: `w${made}`, policies, clock, ...options }) };
}

/** The items of a structured field by name, as an independent parser reads them. */
export function items(field) {
  return Object.fromEntries(parseList(field).map(([name, parameters]) => [name, Object.fromEntries(parameters)]));
}

/** The path of any framework's request. */
export function pathOf(request) {
  const path = request.path ?? request.req?.path ?? request.url;
  return URL.canParse(path) ? new URL(path).pathname : path;
}

const hello = async () => ({ body: 'hello' });

/** Defines the same tests for each adapter. They get the adapter, and functions that start servers of it. */
export function forEachAdapter(define) {
  for (const { name, adapter, start, trust, plainDenials } of adapters) {
    /** The servers that run, by their URLs. */
    const servers = new Map();

    /** Runs a server for one test. */
    async function serving(t, description) {
      const server = await start({ handler: hello, limits: [], ...description });
      t.after(() => server.close());
      servers.set(server.url, server);
      return server.url;
    }

    /** Waits until no client is connected to a server any more, as the server sees it. */
    async function deserted(url) {
      await until('the clients have gone', async () => (await servers.get(url).connections()) === 0);
      await settled();
    }

    /** Runs a server with a start or first request that should fail. Returns the error. */
    async function failing(t, description) {
      const failures = [];
      try {
        const url = await serving(t, { ...description, failed: (error) => failures.push(error) });
        const { status } = await get(url, description.request);
        if (failures.length > 0) assert.equal(status, 500);
      } catch (error) {
        failures.push(error);
      }
      return failures[0];
    }

    describe(name, () => define({ name, adapter, trust, plainDenials, serving, failing, deserted }));
  }
}
