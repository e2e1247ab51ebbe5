// A reload takes a changed policy file as a whole or not at all, and keeps everything that code relies on.

import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Limiter, Policy } from 'tidegate';
import { rateLimit } from 'tidegate/express';
import { pacedFetch } from 'tidegate/fetch';
import { until } from './web/client.mjs';

/** A policy file that is removed at the end of the test. */
function policyFile(t, text) {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-reload-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'tidegate.yaml');
  // At once, because a busy machine may leave a file that is half written for longer than a look.
  const write = (content) => {
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
  };
  write(text);
  return { path, write };
}

const counts = (limiter, ...names) => names.map((name) => limiter.policy(name).limits[0].count);

/** Checks that the message of the error has these parts. */
const refusal =
  (code, ...parts) =>
  (error) => {
    assert.equal(error.code, code, error.message);
    for (const part of parts) assert.ok(error.message.includes(part), `${error.message} lacks ${part}`);
    return true;
  };

test('policies that were given in code stay', async (t) => {
  const { path, write } = policyFile(t, 'policies: {login: 20/minute}');
  const limiter = await Limiter.fromFile(path, { policies: { mail: '3/minute', send: new Policy('2/hour') } });
  t.after(() => limiter.close());
  assert.ok((await limiter.check('mail', 'k', { cost: 2 })).allowed);
  for (const login of [20, 5]) {
    write(`policies: {login: ${login}/minute}`);
    await limiter.reload();
    assert.deepEqual(counts(limiter, 'login', 'mail', 'send'), [login, 3, 2]);
  }
  assert.equal((await limiter.check('mail', 'k')).remaining, 0);
});

test('a watched file is taken when it changes', async (t) => {
  const { path, write } = policyFile(t, 'policies: {login: 20/minute}');
  const lines = [];
  const logger = { warn: (line) => lines.push(line), info() {} };
  const limiter = await Limiter.fromFile(path, { watchMs: 10, logger });
  t.after(() => limiter.close());
  assert.equal((await limiter.check('login', 'k')).limit, 20);
  write('policies: {login: "5/minute; 9/hour"}');
  await until('it is taken', async () => (await limiter.check('login', 'k')).limits.length === 2);
  assert.deepEqual(counts(limiter, 'login'), [5]);
  write('policies: {login: 5 per fortnight}');
  await until('it is told', () => lines.length === 1);
  assert.match(lines[0], /is not taken.*stay in force/);
  write('policies: {login: 6/minute}');
  await until('the next one is taken', async () => (await limiter.check('login', 'k')).limit === 6);
  assert.deepEqual([limiter.counters().reloads, limiter.counters().reloadsRefused, lines.length], [2, 1, 1]);
  assert.throws(() => new Limiter({ watchMs: 5_000 }), refusal('config_invalid', 'fromFile', 'watchMs'));
});

test('a name in code and in the file is an error', async (t) => {
  const { path, write } = policyFile(t, 'policies:\n  login: 20/minute\n');
  await assert.rejects(
    Limiter.fromFile(path, { policies: { login: '3/minute' } }),
    refusal('policy_invalid', `${path}:2`, '"login"', 'in code'),
  );
  const limiter = await Limiter.fromFile(path, { policies: { mail: '3/minute' } });
  t.after(() => limiter.close());
  write('policies:\n  login: 9/minute\n  mail: 4/minute\n');
  await assert.rejects(limiter.reload(), refusal('policy_invalid', `${path}:3`, '"mail"', 'in code'));
  assert.deepEqual(counts(limiter, 'login', 'mail'), [20, 3]);
});

test('a changed store refuses the whole file', async (t) => {
  const { path, write } = policyFile(t, 'store: memory://\npolicies: {login: 20/minute}');
  const limiter = await Limiter.fromFile(path);
  t.after(() => limiter.close());
  write('store: redis://u:hunter2@127.0.0.1:1\npolicies: {login: 5/minute}');
  await assert.rejects(limiter.reload(), (error) => {
    assert.ok(!error.message.includes('hunter2'));
    return refusal('config_invalid', path, 'store has changed')(error);
  });
  assert.deepEqual(counts(limiter, 'login'), [20]);
});

test('a policy that a wrapped function or a middleware uses stays', async (t) => {
  const { path, write } = policyFile(t, 'policies: {login: 20/minute, rest: 5/minute, partner: 9/minute}');
  const limiter = await Limiter.fromFile(path);
  t.after(() => limiter.close());
  const fetch = pacedFetch({ limiter, policy: 'partner' });
  const signIn = limiter.wrap('login', async function signIn() {}, { key: 'k' });
  const middleware = rateLimit({ limiter, policy: 'rest' });
  write('policies: {other: 5/minute}');
  await assert.rejects(
    limiter.reload(),
    refusal('config_invalid', path, '"login"', 'signIn', '"rest"', 'tidegate/express', '"partner"', 'tidegate/fetch'),
  );
  await signIn();
  assert.deepEqual([typeof middleware, typeof fetch], ['function', 'function']);
  assert.deepEqual(counts(limiter, 'login', 'rest', 'partner'), [20, 5, 9]);
});

test('a function cannot be wrapped with a policy that does not exist', (t) => {
  const limiter = new Limiter({ policies: { login: '20/minute' } });
  t.after(() => limiter.close());
  assert.throws(() => limiter.wrap('lgoin', () => {}, { key: 'k' }), refusal('policy_unknown', '"login"'));
});
