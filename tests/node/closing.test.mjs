// Closing a limiter ends its waiting calls, and gives its holds and turns back.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Limiter, ManualClock } from 'tidegate';
import { Servers } from '../servers/servers.mjs';

const HELD = 'concurrency 2 ttl 60s';
const PACED = 'gcra 1/s burst 1';

let redis;
let folder;
before(async () => {
  redis = await Servers.start('single');
  folder = mkdtempSync(path.join(tmpdir(), 'tidegate-'));
});
after(() => {
  rmSync(folder, { recursive: true, force: true });
  return redis?.close();
});

for (const kind of ['file', 'redis']) {
  suite(`closing: ${kind}`, () => {
    const limiting = (t, options = {}) => {
      const store = kind === 'file' ? `file://${folder}/limits?max_bytes=4MB` : redis.url;
      const limiter = new Limiter({ store, prefix: t.name, timeoutMs: 20_000, ...options });
      t.after(() => limiter.close());
      return limiter;
    };

    test('ends those who wait for a hold before holds go back', async (t) => {
      const [limiter, other] = [limiting(t), limiting(t)];
      const held = [await limiter.hold(HELD, 'k'), await limiter.hold(HELD, 'k')];
      let began = 0;
      const waiting = [1, 2, 3, 4].map(() => limiter.hold(HELD, 'k', () => began++, { timeoutMs: Infinity }));
      const ended = Promise.allSettled(waiting);
      while (limiter.waiting(HELD, 'k') < 4) await sleep(1);
      const closed = limiter.close();
      await assert.rejects(
        limiter.hold(HELD, 'k', () => began++),
        { code: 'closed' },
      );
      await closed;
      for (const { reason } of await ended) assert.equal(reason.code, 'closed');
      assert.ok(held.every((hold) => hold.released));
      assert.equal((await other.peek(HELD, 'k')).remaining, 2);
      assert.equal(began, 0);
    });

    test('leaves no unit held among workers', async (t) => {
      const other = limiting(t);
      for (let round = 0; round < 20; round++) {
        const [limiter, key] = [limiting(t), `k${round}`];
        let isClosed = false;
        let late = 0;
        const work = async () => {
          for (;;) {
            await limiter.hold(
              HELD,
              key,
              async () => {
                if (isClosed) late++;
                await sleep(1);
              },
              { timeoutMs: Infinity },
            );
          }
        };
        const ended = Promise.allSettled(Array.from({ length: 6 }, work));
        while (limiter.waiting(HELD, key) < 3) await sleep(1);
        await sleep(round / 4);
        const closed = limiter.close();
        isClosed = true;
        await closed;
        for (const { reason } of await ended) assert.equal(reason.code, 'closed');
        assert.equal((await other.peek(HELD, key)).remaining, 2, `round ${round}`);
        assert.equal(late, 0, `round ${round}`);
      }
    });

    test('gives the turns of acquire back', async (t) => {
      const clock = new ManualClock(1_700_000_000_000);
      const [limiter, other] = [limiting(t, { clock }), limiting(t, { clock })];
      assert.ok((await other.check(PACED, 'k')).allowed);
      const ended = Promise.allSettled(Array.from({ length: 20 }, () => limiter.acquire(PACED, 'k')));
      while (limiter.waiting(PACED, 'k') < 20) await sleep(1);
      await limiter.close();
      for (const { reason } of await ended) assert.equal(reason.code, 'closed');
      assert.equal((await other.peek(PACED, 'k')).retryAfterMs, 1_000);
    });
  });
}
