// Python and Node on one Redis, and on one file, share limits and give the same answers.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Limiter, ManualClock } from 'tidegate';
import { fieldsOf } from '../node/decision_fields.mjs';
import { python, running } from '../node/web/programs.mjs';
import { Servers } from '../servers/servers.mjs';

/** Limits that give nothing back within a test, one of each algorithm that counts without holds. */
const DRAINED = [
  'fixed-window 5000/year',
  'calendar-window 5000/10years',
  'sliding-log 5000/year',
  'sliding-window 5000/year',
  'sliding-counter 5000/year',
  'token-bucket 5000/10years',
  'gcra 5000/10years',
  'leaky-bucket 5000/10years',
];

const found = python();
const here = (name) => fileURLToPath(new URL(name, import.meta.url));

describe('Python and Node', { skip: found.missing }, async () => {
  const servers = await Servers.start();
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  after(() => rmSync(folder, { recursive: true }));
  after(() => servers.close());

  test('drain one limit together, exactly', async (t) => {
    for (const algorithm of ['fixed-window', 'sliding-window', 'sliding-log']) {
      const words = [servers.url, `${algorithm} 5000/hour`];
      const processes = [
        running(t, found.program, [here('drain.py'), ...words]),
        running(t, found.program, [here('drain.py'), ...words]),
        running(t, process.execPath, [here('drain.mjs'), ...words]),
        running(t, process.execPath, [here('drain.mjs'), ...words]),
      ];
      for (const { line } of processes) assert.equal(await line(), 'ready');
      for (const { send } of processes) send('go');
      const taken = await Promise.all(processes.map(async ({ line }) => Number(await line())));
      assert.equal(
        taken.reduce((a, b) => a + b),
        5000,
        `${algorithm}: ${taken}`,
      );
    }
  });

  test('drain one limit in a file together, exactly, over every algorithm', async (t) => {
    for (const [index, policy] of DRAINED.entries()) {
      const words = [`file://${folder}/limits?max_bytes=4MB`, policy.replace('5000', String(5000 + index))];
      const processes = [0, 1, 2].flatMap(() => [
        running(t, found.program, [here('drain.py'), ...words]),
        running(t, process.execPath, [here('drain.mjs'), ...words]),
      ]);
      for (const { line } of processes) assert.equal(await line(), 'ready');
      for (const { send } of processes) send('go');
      const taken = await Promise.all(processes.map(async ({ line }) => Number(await line())));
      const most = 5000 + index;
      assert.equal(
        taken.reduce((a, b) => a + b),
        most,
        `${policy}: ${taken}`,
      );
      // The next policy begins anew.
      const limiter = new Limiter({ store: words[0], timeoutMs: 20_000 });
      await limiter.clearAll();
      await limiter.close();
    }
  });

  for (const store of ['memory://', `file://${folder}/histories?max_bytes=4MB`, servers.url]) {
    test(`give the same Decisions for the same history on ${store.split(':', 1)[0]}`, async (t) => {
      const policies = {
        windows: 'fixed-window 7/10s; calendar-window 20/minute',
        slides: 'sliding-window 5/7s; sliding-log 4/3s; sliding-counter 9/11s',
        buckets: 'token-bucket 5/3s burst 8; gcra 3/s burst 4',
        queue: 'leaky-bucket 3/s burst 5',
        places: 'concurrency 3 ttl 2s',
        none: '0/minute',
      };
      const START = 1_704_067_200;
      const clock = new ManualClock(START * 1000);
      const limiter = new Limiter({ store, policies, prefix: 'node', clock, denyCacheMs: 0, timeoutMs: 20_000 });
      t.after(() => limiter.close());
      const words = [here('history.py'), store, JSON.stringify(policies), String(START)];
      const other = running(t, found.program, words);
      for (const step of history(policies, 400)) {
        clock.advance(step.advance);
        const decision =
          step.do === 'check_all'
            ? await limiter.checkAll(step.entries)
            : await (step.do === 'charge'
                ? limiter.charge(step.policy, step.key, step.cost)
                : limiter[step.do](step.policy, step.key, optionsOf(step)));
        other.send(JSON.stringify(step));
        assert.deepEqual(fieldsOf(decision), JSON.parse(await other.line()), JSON.stringify(step));
      }
    });
  }
});

/** The options of a call. */
function optionsOf({ cost, partial }) {
  return partial === undefined ? { cost } : { cost, partial };
}

/** Random steps, the same in every run. */
function* history(policies, length) {
  let seed = 20_260_101;
  const below = (limit) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * limit);
  };
  const pick = (list) => list[below(list.length)];
  const names = Object.keys(policies);
  const keys = ['alice', 'bob', '', 'Grüße {x}'];
  for (let step = 0; step < length; step++) {
    const advance = pick([0, 0, 1, 10, 137, 999, 1500]);
    const todo = pick(['check', 'check', 'check', 'peek', 'charge', 'check_all', 'partial']);
    // Only `hold` takes units of a concurrency limit by a check.
    const checked = names.filter((name) => name !== 'places');
    if (todo === 'check_all') {
      const entries = Array.from({ length: 1 + below(3) }, () => [pick(checked), pick(keys), 1 + below(2)]);
      yield { do: todo, advance, entries };
    } else if (todo === 'partial') {
      const policy = pick(checked.filter((name) => name !== 'queue'));
      yield { do: 'check', advance, policy, key: pick(keys), cost: 1 + below(9), partial: true };
    } else {
      yield {
        do: todo,
        advance,
        policy: pick(todo === 'check' ? checked : names),
        key: pick(keys),
        cost: 1 + below(4),
      };
    }
  }
}
