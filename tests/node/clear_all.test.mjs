// After `clearAll` a limiter is as if it had never been used, and no other limiter is changed.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Limiter, Policy } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const policies = { window: 'fixed-window 2/hour', journal: new Policy('9/hour', { journal: 3 }) };

describe('clearAll', () => {
  let servers;
  before(async () => {
    servers = await Servers.start('single');
  });
  after(() => servers.close());

  for (const kind of ['memory', 'redis']) {
    it(`forgets everything of the prefix: ${kind}`, async () => {
      const store = kind === 'memory' ? 'memory://' : servers.url;
      const [limiter, other] = ['a', 'ab'].map((prefix) => new Limiter({ store, policies, prefix, timeoutMs: 5000 }));
      assert.ok((await other.check('window', 'alice', { cost: 2 })).allowed);
      assert.ok((await limiter.check('window', 'alice', { cost: 2 })).allowed);
      for (let attempt = 0; attempt < 3; attempt++) assert.ok(!(await limiter.check('window', 'alice')).allowed);
      assert.ok((await limiter.check('journal', 'alice', { meta: 'who' })).allowed);
      assert.equal(await limiter.clearAll(), undefined);
      const answer = await limiter.check('window', 'alice');
      assert.deepEqual([answer.allowed, answer.remaining, answer.source], [true, 1, 'store']);
      assert.deepEqual(await limiter.journal('journal', 'alice'), []);
      assert.ok(!(await other.peek('window', 'alice')).allowed);
      await limiter.close();
      await assert.rejects(limiter.clearAll(), { code: 'closed' });
      await other.close();
    });
  }
});
