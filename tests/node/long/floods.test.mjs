// Everything that a client can make many of takes little memory. Each flood runs in a process with a limit.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Servers } from '../../servers/servers.mjs';

const PROGRAM = fileURLToPath(new URL('../programs/flood.mjs', import.meta.url));
const UNREACHABLE = 'redis://127.0.0.1:1/0';
/** The most MiB of the JavaScript heap, and of the process. */
const HEAP = 100;
const PROCESS = 220;

/** Runs a flood to its end. */
function flood(name, ...more) {
  return new Promise((resolve, reject) => {
    const options = [`--max-old-space-size=${HEAP}`, '--expose-gc'];
    const child = spawn(process.execPath, [...options, PROGRAM, name, ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), 240_000);
    const output = { stdout: '', stderr: '' };
    for (const stream of ['stdout', 'stderr']) {
      child[stream].on('data', (data) => {
        output[stream] += data;
      });
    }
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (code !== 0) reject(new Error(`${name} ended with ${code ?? signal}: ${output.stderr.slice(-1000)}`));
      else resolve(JSON.parse(output.stdout));
    });
  });
}

let servers;
before(async () => {
  servers = await Servers.start('single');
});
after(() => servers?.close());

describe('a flood of', () => {
  const stores = { redis: () => servers.url, memory: () => 'memory://', 'an outage': () => UNREACHABLE };
  const floods = {
    deniedKeys: ['redis', 'memory', 'an outage'],
    partsOfTexts: ['redis'],
    chargedKeys: ['redis'],
    notations: ['redis', 'memory'],
    policies: ['redis'],
    togetherWithMorePoliciesThanFit: ['redis', 'memory'],
  };
  for (const [name, where] of Object.entries(floods)) {
    for (const store of where) {
      it(`${name} takes little memory with ${store}`, async () => {
        const [most] = await flood(name, stores[store]());
        assert.ok(most <= PROCESS, `the process had ${most} MiB`);
      });
    }
  }

  it('short keys is given back when its denials are over', async () => {
    await flood('heapIsGivenBack', servers.url, '3000');
  });
});
