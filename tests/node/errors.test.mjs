// Every code of the shared table has its class, and every failure has the code of the table.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import * as tidegate from 'tidegate';

import { Servers } from '../servers/servers.mjs';

const { Limit, Limiter, Policy, TidegateError, lint } = tidegate;
const require = createRequire(import.meta.url);
const table = JSON.parse(readFileSync(new URL('../errors.json', import.meta.url), 'utf8'));
const native = require('../../bindings-node/binding/index.js');
const { thrown } = require('../../bindings-node/dist/errors.js');

const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
after(() => rmSync(folder, { recursive: true }));

function file(name, text) {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('the table', () => {
  it('names every code of the core, and no other', () => {
    assert.deepEqual(table.map((row) => row.code).sort(), native.codes().sort());
  });

  for (const { code, node } of table) {
    it(`${code} is ${node}`, () => {
      const error = thrown({ code, message: 'why', place: { line: 2, column: 3 } });
      assert.equal(error.constructor, tidegate[node]);
      assert.equal(error.name, node);
      assert.equal(error.code, code);
      assert.equal(error.message, 'why');
      assert.ok(error instanceof TidegateError && error instanceof Error);
      assert.match(error.stack, new RegExp(`^${node}: why`));
    });
  }

  it('an unknown code is a TidegateError', () => {
    const error = thrown({ code: 'new', message: 'why' });
    assert.equal(error.constructor, TidegateError);
  });
});

/** A call that fails with each code. */
const failures = {
  policy_invalid: () => new Limiter().check('5/fortnight', 'k'),
  policy_unknown: () => new Limiter({ policies: { login: '5/s' } }).check('logn', 'k'),
  cost_invalid: () => new Limiter().check('5/s', 'k', { cost: 0 }),
  key_invalid: () => new Limiter().check('5/s', 7),
  config_invalid: async () => new Limiter({ store: 'mysql://' }),
  store_unavailable: async () => {
    const server = createServer();
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    const limiter = new Limiter({ store: `redis://127.0.0.1:${port}`, timeoutMs: 20_000, onStoreError: 'raise' });
    return limiter.check('5/s', 'k').finally(() => limiter.close());
  },
  store_timeout: async () => {
    const sockets = new Set();
    const server = createServer((socket) => sockets.add(socket.on('error', () => {})));
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const store = `redis://127.0.0.1:${server.address().port}`;
    const limiter = new Limiter({ store, timeoutMs: 2_000, onStoreError: 'raise' });
    return limiter.check('5/s', 'k').finally(async () => {
      await limiter.close();
      for (const socket of sockets) socket.destroy();
      server.close();
    });
  },
  store_rejected: async () => {
    const servers = await Servers.start('single');
    await servers.command(['CONFIG', 'SET', 'maxmemory', '1']);
    const limiter = new Limiter({ store: servers.url, timeoutMs: 20_000, onStoreError: 'raise' });
    return limiter.check('5/s', 'k').finally(async () => {
      await limiter.close();
      await servers.close();
    });
  },
  closed: async () => {
    const limiter = new Limiter();
    await limiter.close();
    return limiter.check('5/s', 'k');
  },
};

describe('a failure has its code and class', () => {
  for (const { code, node } of table) {
    it(code, async () => {
      await assert.rejects(failures[code], (error) => {
        assert.equal(error.code, code, error.stack);
        assert.equal(error.constructor, tidegate[node]);
        return true;
      });
    });
  }
});

describe('an error has a position', () => {
  it('in a notation', () => {
    assert.throws(
      () => new Policy('5/s; x/m'),
      (error) => error.code === 'policy_invalid' && error.place.line === 1 && error.place.column === 6,
    );
  });

  it('in a policy file', async () => {
    const path = file('wrong.yaml', 'policies:\n  login: 5/s\n  api: 5/x\n');
    await assert.rejects(Limiter.fromFile(path), (error) => {
      assert.equal(error.place.file, path);
      assert.equal(error.place.line, 3);
      assert.ok(error.message.startsWith(`${path}:3:`), error.message);
      return true;
    });
  });

  it('as a warning has', () => {
    const path = file('odd.yaml', 'policies:\n  login: 10/10s; 600/600s\n');
    const [warning] = lint(path);
    assert.equal(warning.policy, 'login');
    assert.equal(warning.place.line, 2);
    assert.throws(() => lint(join(folder, 'none.yaml')), { code: 'policy_invalid' });
  });
});

describe("a message has the names of Node's options", () => {
  const names = [
    ['of a range', () => new Limiter({ denyCacheMs: 61_000 }), /^a denyCacheMs of 61s is out of range/],
    ['of a timeout', () => new Limiter({ timeoutMs: 0 }), /^a timeoutMs of 0ns is out of range/],
    ['of a choice', () => new Limiter({ onStoreError: 'panic' }), /^onStoreError must be .*, not "panic"/],
    ['of a call', () => new Limiter().checkAll([]), /^checkAll was given 0 entries/],
    [
      'of a queue',
      () => new Limiter({ maxWaitingPerKey: 0 }),
      /^maxWaitingPerKey is 0, which .* a timeout of 0 does not wait$/,
    ],
    ['of a secret', () => new Limiter({ keySecret: 'short' }), /^the keySecret has 5 bytes/],
    [
      'of a policy',
      () => new Policy('5/s', { lease: 1, countDenied: true }),
      /lease: countDenied charges each denied check/,
    ],
    [
      'of a call, twice',
      () => new Limiter().checkAll([['concurrency 5', 'k']]),
      /^checkAll: .* that checkAll takes of it;/,
    ],
    ['of an endless number', () => new Limiter({ timeoutMs: -Infinity }), /^timeoutMs must be .*, not -Infinity/],
  ];
  for (const [name, call, says] of names) {
    it(name, () =>
      assert.rejects(
        async () => call(),
        (error) => says.test(error.message),
      ),
    );
  }

  it('but not those of a policy file, and not what was given', async () => {
    const path = file('choice.yaml', 'policies:\n  a: {limits: 5/s, on_store_error: opne}\n');
    await assert.rejects(Limiter.fromFile(path), /on_store_error/);
    const limiter = new Limiter({ policies: { block_for: '5/s' } });
    await assert.rejects(limiter.check('blok_for', 'a'), /block_for/);
  });

  it('also in the warnings of a store', async () => {
    const told = [];
    const logger = { warn: (line) => told.push(line), info: () => {} };
    const onChange = ({ message }) => told.push(message);
    const limiter = new Limiter({ store: 'redis://127.0.0.1:1/0', timeoutMs: 5_000, logger, onChange });
    while (told.length < 2) {
      await limiter.check('5/s', 'k');
      await sleep(5);
    }
    await limiter.close();
    const outage =
      / is lost, so this process limits by itself \(the limiter's onStoreError is `local`\) until it answers: /;
    for (const line of told) assert.match(line, outage);
  });
});

describe('a wrong argument is an error', () => {
  const wrong = [
    ['an option of a limiter', () => new Limiter({ stroe: 'memory://' }), 'config_invalid'],
    ['no options', () => new Limiter(null), 'config_invalid'],
    ['an option of a policy', () => new Policy('5/s', { blockfor: 1 }), 'policy_invalid'],
    ['the type of an option', () => new Policy('5/s', { shadow: 'yes' }), 'policy_invalid'],
    ['an option of a limit', () => new Limit('gcra', 1, { period: '1s', brust: 2 }), 'policy_invalid'],
    ['an algorithm', () => new Limit('grca', 1, { period: '1s' }), 'policy_invalid'],
    ['no period', () => new Limit('gcra', 1), 'policy_invalid'],
    ['no day', () => new Limit('calendar-window', 1, { period: 'month', from: 'day 32' }), 'policy_invalid'],
    ['no weekday', () => new Limit('calendar-window', 1, { period: 'week', from: 'day 3' }), 'policy_invalid'],
    ['no zone', () => new Limit('calendar-window', 1, { period: 'day', in: 'Europe/Berlim' }), 'policy_invalid'],
    ['no calendar', () => new Limit('gcra', 1, { period: 'day', in: 'Europe/Berlin' }), 'policy_invalid'],
    ['a zone that is no text', () => new Limit('calendar-window', 1, { period: 'day', in: 5 }), 'policy_invalid'],
    ['a count that is not a whole number', () => new Limit('gcra', 1.5, { period: 1000 }), 'policy_invalid'],
    ['a limit of a wrong type', () => new Policy([5]), 'policy_invalid'],
    ['a policy of a wrong type', () => new Limiter({ policies: { a: 5 } }), 'policy_invalid'],
    ['a timeout', () => new Limiter({ timeoutMs: Number.NaN }), 'config_invalid'],
    ['a timeout as text', () => new Limiter({ timeoutMs: '250' }), 'config_invalid'],
    ['a deny cache', () => new Limiter({ denyCacheMs: -1 }), 'config_invalid'],
    ['an unknown choice', () => new Limiter({ onStoreError: 'panic' }), 'config_invalid'],
    ['a clock of a wrong type', () => new Limiter({ clock: { now: () => 0 } }), 'config_invalid'],
    ['a time before 1970', () => new tidegate.ManualClock(-1), 'config_invalid'],
    ['a store of a wrong type', () => new Limiter({ store: 6379 }), 'config_invalid'],
  ];
  for (const [name, make, code] of wrong) {
    it(name, () => assert.throws(make, (error) => error instanceof TidegateError && error.code === code));
  }

  it('a password is in no error', async () => {
    const limiter = new Limiter({ store: 'redis://user:secret@127.0.0.1:1/0', onStoreError: 'raise' });
    await assert.rejects(limiter.check('5/s', 'k'), (error) => !`${error.stack}`.includes('secret'));
    await limiter.close();
    assert.throws(
      () => new Limiter({ store: 'redis://user:secret@127.0.0.1:99999/0' }),
      (error) => !`${error.stack}`.includes('secret'),
    );
  });
});
