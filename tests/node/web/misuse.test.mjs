// Wrong use of every adapter is an error with a clear message.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Policy } from 'tidegate';
import { forEachAdapter, limiting } from './each_adapter.mjs';

forEachAdapter(({ adapter, failing }) => {
  test('a key function that returns no key', async (t) => {
    for (const missing of [undefined, null, '', {}, Number.NaN]) {
      const { limiter } = limiting({ login: '1/minute' });
      const tenant = async () => missing;
      const error = await failing(t, { limits: [{ limiter, policy: 'login', key: tenant }] });
      assert.equal(error.code, 'key_invalid');
      assert.match(error.message, /the function tenant given as key returned/);
    }
    const { limiter } = limiting({ login: '1/minute' });
    const request = { headers: { 'x-user': '{"name": "alice"}' } };
    const error = await failing(t, { limits: [{ limiter, policy: 'login', key: adapter.user() }], request });
    assert.equal(error.code, 'key_invalid');
    assert.match(error.message, /id, sub, username/);
  });

  test('a cost that is not a whole number', async (t) => {
    for (const cost of [() => undefined, () => 0.5, 0]) {
      const { limiter } = limiting({ login: '1/minute' });
      const error = await failing(t, { limits: [{ limiter, policy: 'login', cost }] });
      assert.equal(error.code, 'cost_invalid');
    }
  });

  test('the same middleware twice', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const error = await failing(t, { limits: [{ limiter, policy: 'login' }], twice: true });
    assert.equal(error.code, 'config_invalid');
    assert.match(error.message, /runs twice for GET \//);
    // The mistake is detected before anything is counted twice.
    assert.equal((await limiter.peek('login', '127.0.0.1')).remaining, 4);
  });

  test('the same policy and key twice', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    for (const policy of ['login', new Policy('5/minute', { name: 'login' })]) {
      const error = await failing(t, {
        limits: [
          { limiter, policy },
          { limiter, policy },
        ],
      });
      assert.match(error.message, /policy "login" runs twice/);
    }
  });

  test('wrong options', async (t) => {
    const { limiter } = limiting({ login: '5/minute' });
    const mistakes = [
      [{ limiter, policy: 'login', windowMs: 1 }, 'config_invalid', /no option windowMs/],
      [{ policy: 'login' }, 'config_invalid', /limiter/],
      [{ limiter, policy: 'logn' }, 'policy_unknown', /logn/],
      [{ limiter, policy: '' }, 'config_invalid', /policy/],
      [{ limiter, policy: [] }, 'config_invalid', /empty/],
      [{ limiter, policy: 'login', headers: 'all' }, 'config_invalid', /both, ietf, ietf-10, ietf-11, legacy, off/],
      [{ limiter, policy: 'login', key: 7 }, 'config_invalid', /key/],
      [
        { limiter, policy: 'login', key: 'user' },
        'config_invalid',
        /one budget for everybody: write key: fixed\("user"\)/,
      ],
      [{ limiter, policy: [{ policy: 'login', key: 'user' }] }, 'config_invalid', /write key: fixed\("user"\)/],
      [{ limiter, policy: 'login', key: adapter.fixed }, 'config_invalid', /the helper fixed itself/],
      [{ limiter, policy: 'login', skip: true }, 'config_invalid', /skip/],
    ];
    for (const [options, code, says] of mistakes) {
      const error = await failing(t, { limits: [options] });
      assert.equal(error?.code, code, JSON.stringify(options.policy));
      assert.match(error.message, says);
    }
    for (const trustedProxies of [['0.0.0.0/0'], ['::/0'], true, ['proxy.example'], [1], '1', -1, 0.5, 1n, null]) {
      assert.throws(() => adapter.clientIp({ trustedProxies }), { code: 'config_invalid' });
    }
    assert.throws(() => adapter.clientIp({ ipv6Prefix: 0 }), { code: 'config_invalid' });
    assert.throws(() => adapter.header(''), { code: 'config_invalid' });
  });
});
