// Limiters on a store of the application.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';

import express from 'express';
import { Limiter, StoreError } from 'tidegate';
import { rateLimit } from 'tidegate/express';
import { NotApplied, verifyStore } from 'tidegate/stores';
import { Table } from './own_store.mjs';
import { cases, run } from './vectors.mjs';

const DEFECTS = JSON.parse(readFileSync(new URL('../stores/defects.json', import.meta.url), 'utf8'));

function limiterOn(store, options = {}) {
  return new Limiter({ store, policies: { api: '5/hour' }, timeoutMs: 60_000, onStoreError: 'raise', ...options });
}

/** The thread that moves the clock would renew holds, and cannot wait for its event loop. */
const isRenewedByClock = (one) => JSON.stringify(one).includes('concurrency') && one.steps.some(({ at }) => at);

it('vectors hold', async () => {
  for (const one of cases().filter((one) => !isRenewedByClock(one))) await run(one, new Table(), 'tg');
});

describe('the test kit names each defect', { concurrency: 8 }, () => {
  it('and none of a whole store', () => verifyStore(new Table()));
  for (const [defect, sentence] of Object.entries(DEFECTS)) {
    it(defect, () =>
      assert.rejects(verifyStore(new Table(defect)), (error) => {
        // The names of languages differ.
        assert.ok(error.message.includes(sentence.replace('unix seconds', '')), error.message);
        return true;
      }),
    );
  }
});

it('an error of a method is the cause of the error', async () => {
  const broken = new TypeError('no such host');
  for (const method of ['read', 'compareAndSwap']) {
    const store = new Table();
    store[method] = async () => {
      throw broken;
    };
    await assert.rejects(limiterOn(store, { timeoutMs: 300 }).check('api', 'a'), (error) => {
      assert.ok(error instanceof StoreError && error.cause === broken);
      assert.match(error.message, /Table\.\w+ failed: .*no such host/);
      return true;
    });
  }
});

for (const [answer, sentence] of [
  [undefined, 'it must return { now, values }'],
  [{ now: null, values: [] }, '0 answers to 1 questions'],
  [{ now: null, values: ['x'] }, 'it must return'],
  [{ now: null, values: [{ version: 1.5, data: new Uint8Array() }] }, 'a version that is a whole number'],
  [{ now: null, values: [{ version: 1, data: 'x' }] }, 'data as Uint8Array'],
  [{ now: '1', values: [null] }, 'now in milliseconds'],
]) {
  it(`a wrong answer is named: ${sentence}`, async () => {
    const store = new Table();
    store.read = async () => answer;
    await assert.rejects(limiterOn(store).check('api', 'a'), (error) => {
      assert.equal(error.code, 'store_rejected');
      assert.ok(error.message.includes(sentence), error.message);
      return true;
    });
  });
}

it('a swap that did not happen is tried again', async () => {
  let tries = 0;
  class Busy extends Table {
    async compareAndSwap(changes) {
      tries += 1;
      if (tries < 4) throw new NotApplied('busy');
      return super.compareAndSwap(changes);
    }
  }
  const { remaining } = await limiterOn(new Busy()).check('api', 'a');
  assert.deepEqual([remaining, tries], [4, 4]);
});

it('a store that hangs ends by the timeout', async () => {
  const store = new Table();
  store.read = () => new Promise(() => {});
  await assert.rejects(limiterOn(store, { timeoutMs: 100 }).check('api', 'a'), { code: 'store_timeout' });
});

it('calls at once charge exactly the limit, and versions of each type come back', async () => {
  for (const version of [Number, BigInt, String, (count) => Buffer.from(`${count}`)]) {
    class Typed extends Table {
      // Not `swap`: the whole store compares all versions before it swaps any.
      compareAndSwap(changes) {
        const text = (value) => (value instanceof Uint8Array ? Buffer.from(value).toString() : value);
        const number = (value) => (value === null ? null : Number(text(value)));
        return super.compareAndSwap(changes.map((change) => ({ ...change, version: number(change.version) })));
      }

      async read(keys) {
        const { now, values } = await super.read(keys);
        return { now, values: values.map((value) => value && { ...value, version: version(value.version) }) };
      }
    }
    const limiter = limiterOn(new Typed());
    const answers = await Promise.all(Array.from({ length: 50 }, () => limiter.check('api', 'a')));
    assert.equal(answers.filter(({ allowed }) => allowed).length, 5);
  }
});

it('an Express service counts on it', async () => {
  const app = express();
  app.use(rateLimit({ limiter: limiterOn(new Table()), policy: '1/hour' }));
  app.get('/', (_, response) => response.send('ok'));
  const server = app.listen(0);
  try {
    const url = `http://127.0.0.1:${server.address().port}/`;
    assert.deepEqual([(await fetch(url)).status, (await fetch(url)).status], [200, 429]);
  } finally {
    server.close();
  }
});
