// lint of notations, of policies given in code and of files, the log lines when a file is loaded, and other contents of a file.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';

import { Limiter, lint, Policy } from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const USELESS = '10/10s; 600/600s';
const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
after(() => rmSync(folder, { recursive: true }));

function file(name, text) {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

async function soon(holds) {
  const deadline = Date.now() + 20_000;
  while (!holds()) {
    assert.ok(Date.now() < deadline);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

describe('lint', () => {
  it('has for a notation and a policy the warnings of a file', () => {
    const [inFile] = lint(file('odd.yaml', `policies:\n  login: ${USELESS}\n`));
    const [inText] = lint(USELESS);
    assert.equal(inText.message, inFile.message);
    assert.deepEqual([inText.place.line, inText.place.column, inFile.place.column], [1, 9, '  login: '.length + 9]);
    for (const source of [new Policy(USELESS), { login: USELESS }, { login: { limits: [USELESS] } }]) {
      const [warning, ...others] = lint(source);
      assert.equal(warning.message, inFile.message);
      assert.equal(warning.place, undefined);
      assert.equal(others.length, 0);
    }
    assert.equal(lint({ login: new Policy(USELESS) })[0].policy, 'login');
    assert.deepEqual(new Policy(USELESS, { name: 'login' }).lint(), lint({ login: USELESS }));
    assert.deepEqual(lint('20/minute; 5/3s'), []);
    assert.deepEqual(lint({ a: '5/s', b: { limits: '5/s', journal: 5 } }), []);
    assert.match(lint({ 'create-token': '5/s', CreateToken: '5/s' })[0].message, /only in case/);
  });

  it('throws for what is not valid', () => {
    for (const source of ['20/minuet', 'missing.yaml', 'policies', { a: '5/minuet' }, { a: 5 }]) {
      assert.throws(() => lint(source), { code: 'policy_invalid' });
    }
    for (const source of [5, null, ['5/s']]) assert.throws(() => lint(source), { code: 'config_invalid' });
    assert.throws(() => lint('20/minuet'), /did you mean `minute`/);
  });

  it('offers the new form of an older file', async () => {
    const path = file('older.json', '{"limits": [{"name": "a.b", "config": [{"limit": 20, "period": "60"}]}]}');
    assert.match(lint(path)[0].message, /`"a.b": "20\/minute"`/);
    const limiter = await Limiter.fromFile(path, { logger: false });
    assert.equal((await limiter.check('a.b', 'k')).limit, 20);
    await limiter.close();
  });
});

describe('a file', () => {
  it('logs its warnings, once for each load', async () => {
    const path = file('logged.yaml', `policies:\n  login: ${USELESS}\n`);
    const lines = [];
    const logger = { warn: (line) => lines.push(line), info: () => {} };
    const limiter = await Limiter.fromFile(path, { logger });
    await soon(() => lines.length > 0);
    await limiter.check('login', 'a');
    assert.equal(lines.length, 1);
    assert.ok(lines[0].includes(`${path}:2:`) && lines[0].includes('never decides anything'), lines[0]);
    file('logged.yaml', 'policies:\n  login: 0/s\n');
    await limiter.reload();
    await soon(() => lines.length > 1);
    assert.equal(lines.length, 2);
    assert.match(lines[1], /always denies/);
    await limiter.close();
  });

  it('may have a rollout or shards', async () => {
    const servers = await Servers.start('single');
    try {
      const other = servers.url.replace('127.0.0.1', 'localhost');
      const rollout = { rollout: { from: servers.url, to: `\${NEW_URL:-${other}}`, percent: 5 } };
      const options = { timeoutMs: 5_000 };
      for (const store of [rollout, [servers.url, other], { shards: [servers.url, other] }]) {
        const path = file('stores.json', JSON.stringify({ store, policies: { login: '5/s' } }));
        const limiter = await Limiter.fromFile(path, options);
        assert.equal((await limiter.check('login', 'a')).source, 'store');
        if (store === rollout) limiter.setRollout(100);
        else assert.throws(() => limiter.setRollout(100), { code: 'config_invalid' });
        await limiter.close();
      }
      const path = file(
        'wrong.yaml',
        'policies: {}\nstore: {rollout: {from: redis://:hunter2@h, to: 5, percent: 5}}\n',
      );
      await assert.rejects(Limiter.fromFile(path, options), (error) => {
        assert.ok(
          error.message.includes(':2:49: `to` must be a URL') && !error.message.includes('hunter2'),
          error.message,
        );
        return error.code === 'policy_invalid';
      });
    } finally {
      await servers.close();
    }
  });
});
