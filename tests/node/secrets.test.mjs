// No piece of a secret in a store URL appears in a message, whatever characters the secret has.

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { Limiter, lint, Policy, rollout } from 'tidegate';
import { rateLimit } from 'tidegate/express';

// The places of a secret in a URL, also those of a mistake. No server listens on port 1.
const PLACES = [
  'redis://user:{}@127.0.0.1:1/0',
  'redis://:{}@127.0.0.1:1/0',
  'rediss://:{}@127.0.0.1:1?protocol=3',
  'valkey://u:{}@127.0.0.1:1/zero',
  'redis+unix://:{}@/nonexistent/redis.sock?db=1',
  'redis+sentinel://u:{}@127.0.0.1:1,127.0.0.1:2/mymaster/0?sentinel_password=x',
  'redis+sentinel://127.0.0.1:1/mymaster?sentinel_username=s&sentinel_password={}',
  'redis+cluster://:{}@127.0.0.1:1,127.0.0.1:2',
  'redis+cluster://:{}@127.0.0.1:1/7',
  'memory://u:{}@host?max_keys=10',
  'redis://127.0.0.1:1/0?password={}',
  'redis://127.0.0.1:1/0;password={}',
  'https://u:{}@127.0.0.1:1/0',
  '{}://127.0.0.1:1/0',
  'redis+{}://127.0.0.1:1/0',
  'redis:/u:{}@127.0.0.1:1/0',
  'u:{}@127.0.0.1:1/0',
];
// No message has a piece of four characters with one of these, so such a piece can only come from the secret.
const MARKS = 'QXZJVKWY';
const SYMBOLS = [...MARKS, ...'89/?#@:&%=+ ,;[]{}$\\"\'<>|^`~!*().-_\té😀'];

/** Numbers below a bound, the same in every run. */
function chance(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Secrets, and URLs with them, plain and escaped. */
function* secrets(cases) {
  const below = chance(7);
  for (let number = 0; number < cases; number++) {
    const secret = Array.from({ length: 4 + below(20) }, () => SYMBOLS[below(SYMBOLS.length)]).join('');
    const place = PLACES[below(PLACES.length)];
    yield [secret, place.replace('{}', () => (below(2) === 0 ? secret : encodeURIComponent(secret)))];
  }
}

function pieces(secret) {
  const characters = [...secret];
  const windows = characters.slice(3).map((_, at) => characters.slice(at, at + 4).join(''));
  const found = windows.filter((piece) => [...piece].some((one) => MARKS.includes(one)));
  return new Set(found.flatMap((piece) => [piece, inspect(piece).slice(1, -1), JSON.stringify(piece).slice(1, -1)]));
}

/** Everything that a program may see of a call: its result, or its error in every printed form. */
async function said(call) {
  try {
    return inspect(await call(), { depth: 5 });
  } catch (error) {
    return `${error} ${inspect(error, { depth: 5 })} ${JSON.stringify(error)}`;
  }
}

const mayBeUrl = (text) => text.includes('://') || /:.*@/s.test(text);

/** The ways of a URL into a message. */
function* used(url) {
  const other = 'redis://127.0.0.1:1/9';
  const checked = (store) => async () => {
    const lines = [];
    const logger = { warn: (line) => lines.push(line), info: (line) => lines.push(line) };
    const onChange = (change) => lines.push(change);
    const limiter = new Limiter({ store, timeoutMs: 20, onStoreError: 'raise', logger, onChange });
    try {
      return [inspect(limiter), lines, await said(() => limiter.check('5/s', 'k')), await said(() => limiter.ping())];
    } finally {
      await limiter.close();
    }
  };
  yield checked(url);
  yield checked([url, other]);
  yield checked([url, url]);
  yield async () => checked(rollout(url, other, 50))();
  yield async () => checked(rollout(other, url, 50))();
  yield () => rollout(url, other, 50);
  yield () => rollout(url, other, url);
  yield () => new Limiter({ store: `${url}\ud800` });
  yield () => rollout(`${url}\ud800`, other, 5);
  yield () => new Limiter({ store: new URL('redis://h'), prefix: 5 });
  yield () => new Limiter({ keySecret: `${url}\ud800` });
  yield () => new Limiter({ keySecret: [url] });
  if (mayBeUrl(url)) {
    yield () => new Limiter(url);
    yield () => new Limiter({ clock: url });
    for (const option of ['prefix', 'timeoutMs', 'onStoreError', 'denyCacheMs', 'maxWaiting', 'logger', 'onChange']) {
      yield () => new Limiter({ [option]: url });
    }
    yield () => rateLimit({ limiter: new Limiter(), policy: '5/s', headers: url });
    yield () => Limiter.fromFile('tidegate.yaml', url);
    yield () => new Policy(url);
    yield () => new Limiter().check(url, 'k');
    yield () => new Limiter().check('5/s', 'k', { cost: url });
    yield () => new Limiter({ policies: { p: url } });
    yield () => rateLimit({ limiter: url, policy: '5/s' });
    yield () => rateLimit({ limiter: new Limiter(), policy: url });
  }
  if (url.includes('://')) {
    yield () => Limiter.fromFile(url);
    yield () => lint(url);
  }
}

test('no piece of a secret is shown', async () => {
  for (const [secret, url] of secrets(120)) {
    const shown = await Promise.all(Array.from(used(url), said));
    for (const piece of pieces(secret)) {
      for (const text of shown) assert.ok(!text.includes(piece), `${piece} of ${url} is in ${text}`);
    }
  }
});

test('no piece of a secret in a file or the environment is shown', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-'));
  t.after(() => rm(folder, { recursive: true }));
  for (const [secret, url] of secrets(120)) {
    process.env['TIDEGATE_TEST_URL'] = url;
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the file has it
    for (const text of ['store: ${TIDEGATE_TEST_URL}\npolicies: {}', `store: ${url}\npolicies: {}`]) {
      const path = join(folder, 'policies.yaml');
      await writeFile(path, text);
      const shown = await said(() => Limiter.fromFile(path));
      for (const piece of pieces(secret)) assert.ok(!shown.includes(piece), `${piece} of ${url} is in ${shown}`);
    }
  }
});

test('a keySecret with half a surrogate pair is refused without showing it', () => {
  for (const keySecret of ['TOPSECRET-0123456789\ud800', '\udc00TOPSECRET-0123456789']) {
    assert.throws(
      () => new Limiter({ keySecret }),
      (error) =>
        error.code === 'config_invalid' &&
        /keySecret holds half a surrogate pair/.test(error.message) &&
        !inspect(error).includes('TOPSECRET'),
    );
  }
});

test('the message says to escape', () => {
  for (const store of [
    'redis://user:12/SECRET@h:1/0',
    'redis+sentinel://h/m?sentinel_password=a&SECRET',
    'redis://u:1?SECRET@h',
  ]) {
    assert.throws(
      () => new Limiter({ store }),
      (error) =>
        error.code === 'config_invalid' && /percent-encode/.test(error.message) && !inspect(error).includes('SECRET'),
    );
  }
});
