// The fields that announce limits, as an independent parser of structured fields reads them from every adapter.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter, Policy } from 'tidegate';
import { get } from './client.mjs';
import { forEachAdapter, items, limiting } from './each_adapter.mjs';

// Two limits, one with held units, and one. The order is that of the route.
const POLICIES = {
  login: 'fixed-window 20/minute; fixed-window 2/3s',
  slots: 'concurrency 1',
  all: 'gcra 20/minute',
};
const ANNOUNCED = {
  'login-1': { q: 20, w: 60 },
  'login-2': { q: 2, w: 3 },
  slots: { q: 1, qu: 'concurrent-requests' },
  all: { q: 20, w: 60 },
};
const TEXT = '"login-1";q=20;w=60, "login-2";q=2;w=3, "slots";q=1;qu="concurrent-requests", "all";q=20;w=60';

/** The items of RateLimit. Each names an item of RateLimit-Policy. That field is the same on every answer. */
function announced({ headers }) {
  assert.equal(headers['ratelimit-policy'], TEXT);
  assert.deepEqual(items(headers['ratelimit-policy']), ANNOUNCED);
  const limits = items(headers['ratelimit']);
  for (const name of Object.keys(limits)) assert.ok(name in ANNOUNCED, name);
  return limits;
}

const violated = ({ body }) => JSON.parse(body)['violated-policies'];

forEachAdapter(({ serving }) => {
  test('every answer of a route announces the same policies', async (t) => {
    const { limiter, clock } = limiting(POLICIES);
    const limits = [{ limiter, policy: ['login', 'slots', 'all'], key: () => 'k' }];
    const url = await serving(t, { limits });
    const first = await get(url);
    assert.equal(first.status, 200);
    assert.deepEqual(announced(first), { 'login-2': { r: 1, t: 3 }, slots: { r: 0 }, all: { r: 19, t: 3 } });
    const hold = await limiter.hold('slots', 'k');
    // The other limits are not asked, and still announced.
    const full = await get(url);
    assert.equal(full.status, 429);
    assert.deepEqual([announced(full), violated(full)], [{ slots: { r: 0 } }, ['slots']]);
    await hold.release();
    assert.deepEqual(announced(await get(url))['login-2'], { r: 0, t: 3 });
    const refused = await get(url);
    assert.equal(refused.status, 429);
    assert.deepEqual([announced(refused)['login-2'], violated(refused)], [{ r: 0, t: 3 }, ['login-2']]);
    for (let window = 0; window < 9; window++) {
      clock.advance(3000);
      announced(await get(url));
      announced(await get(url));
    }
    // Another limit decides now, and the policies are the same.
    clock.advance(3000);
    const later = await get(url);
    assert.equal(later.status, 429);
    assert.deepEqual([announced(later)['login-1'], violated(later)], [{ r: 0, t: 30 }, ['login-1']]);
  });

  test('t is the time until more units', async (t) => {
    const { limiter, clock } = limiting({ p: 'gcra 20/minute' });
    const url = await serving(t, { limits: [{ limiter, policy: 'p' }] });
    let last;
    for (let index = 0; index < 20; index++) last = await get(url);
    assert.equal(last.status, 200);
    assert.deepEqual(items(last.headers['ratelimit']), { p: { r: 0, t: 3 } });
    clock.advance(3000);
    assert.equal((await get(url)).status, 200);
  });

  test('a missing store leaves the policies', async (t) => {
    for (const onStoreError of ['raise', 'closed']) {
      // No server listens on port 1.
      const limiter = new Limiter({ store: 'redis://127.0.0.1:1', onStoreError, policies: POLICIES });
      t.after(() => limiter.close());
      const url = await serving(t, { limits: [{ limiter, policy: ['login', 'all'] }] });
      const answer = await get(url);
      const names = ['login-1', 'login-2', 'all'];
      assert.equal(answer.status, 503);
      assert.deepEqual(Object.keys(items(answer.headers['ratelimit-policy'])), names);
      assert.equal(answer.headers['ratelimit'], undefined);
      assert.deepEqual(violated(answer), names);
    }
  });

  test('names are escaped and read back', async (t) => {
    const { limiter } = limiting();
    const policy = new Policy('20/minute; 5/3s', { name: 'a "b" \\ c' });
    const url = await serving(t, { limits: [{ limiter, policy }] });
    const { headers } = await get(url);
    assert.deepEqual(Object.keys(items(headers['ratelimit-policy'])), ['a "b" \\ c-1', 'a "b" \\ c-2']);
    assert.deepEqual(Object.keys(items(headers['ratelimit'])), ['a "b" \\ c-2']);
  });
});
