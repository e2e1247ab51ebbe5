// Behind a proxy that repeats, drops, swaps and cuts replies, no call gets another call's Decision.
//
// `TIDEGATE_OUT_OF_STEP` sets the necessary number of Decisions.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Limiter, StoreError } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const PROXY = fileURLToPath(new URL('../servers/faulty_proxy.py', import.meta.url));
const DECISIONS = Number(process.env.TIDEGATE_OUT_OF_STEP ?? 5_000);
const COUNT = 1_000_000;
const POLICIES = ['fixed-window 1000000/hour', 'gcra 1000000/hour', 'sliding-log 1000000/hour'];

describe('behind a proxy at fault', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  it('a call gets its own Decision or an error', async () => {
    const proxy = spawn('python3', [PROXY, String(servers.port(0)), '3'], { stdio: ['pipe', 'pipe', 'inherit'] });
    proxy.stdout.setEncoding('utf8');
    const [port] = await once(proxy.stdout, 'data');
    const limiter = new Limiter({
      store: `redis://127.0.0.1:${port.trim()}/0`,
      timeoutMs: 60,
      denyCacheMs: 0,
      onStoreError: 'raise',
      logger: false,
    });
    let [answered, number] = [0, 0];
    const ask = async () => {
      while (answered < DECISIONS) {
        const key = `key ${number++}`;
        const policy = POLICIES[number % POLICIES.length];
        const cost = 1 + Math.floor(Math.random() * 2 * COUNT);
        try {
          const decision = await limiter.check(policy, key, { cost });
          const allowed = cost <= COUNT;
          const found = [decision.allowed, decision.limits[0].remaining, decision.key, decision.cost];
          assert.deepEqual(found, [allowed, COUNT - (allowed ? cost : 0), key, cost]);
          answered += 1;
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          // While the breaker is open, calls fail at once.
          await sleep(1);
        }
      }
    };
    await Promise.all(Array.from({ length: 16 }, ask));
    await limiter.close();
    proxy.stdin.end();
    const [faults] = await once(proxy.stdout, 'data');
    assert.ok(Number(faults) > DECISIONS / 1_000, `${faults} replies were corrupted`);
  });
});
