// A named policy that a program makes from a notation at run time, like one out of a database.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { Limiter, Policy } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

describe('a policy with a name of its own', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers?.close());

  for (const store of ['memory', 'redis']) {
    it(`counts by its name, and each call is answered by its own numbers (${store})`, async () => {
      const limiter = new Limiter({
        store: store === 'redis' ? servers.url : 'memory://',
        prefix: 'named',
        denyCacheMs: 60_000,
        timeoutMs: 20_000,
      });
      const check = async (notation, name = 'customer') => {
        const decision = await limiter.check(new Policy(notation, { name }), 'alice');
        assert.equal(decision.policy, name);
        return [decision.allowed, decision.remaining];
      };
      assert.deepEqual(await check('fixed-window 2/hour'), [true, 1]);
      assert.deepEqual(await check('fixed-window 2/hour'), [true, 0]);
      assert.deepEqual(await check('fixed-window 2/hour'), [false, 0]);
      assert.deepEqual(await check('fixed-window 5/hour'), [true, 2]);
      assert.deepEqual(await check('fixed-window 2/hour'), [false, 0]);
      assert.deepEqual(await check('fixed-window 2/day'), [true, 1]);
      assert.deepEqual(await check('fixed-window 2/hour', 'visitor'), [true, 1]);
      assert.equal(limiter.stats().policies.customer.denied, 2);
      await limiter.close();
    });
  }
});
