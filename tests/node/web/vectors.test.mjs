// `tests/http` through the binding: the fields that JavaScript builds are those of the core.

import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Limiter, ManualClock } from 'tidegate';
import { clientIp, rateLimit, user } from 'tidegate/express';
import { observations } from 'tidegate/outgoing';

// Adapters use private modules of the package, so they are loaded by path.
const require = createRequire(import.meta.url);
const dist = new URL('../../../bindings-node/dist/', import.meta.url);
const load = (name) => require(new URL(name, dist).pathname);
const { announce } = load('http/fields.js');
const { problem, retryAfter, status } = load('http/refusal.js');
const { placedKey } = load('http/notation-place.js');
const { native } = load('native.js');

/** A request without a user, and the key that `user` makes from it. */
const NO_USER = { headers: {}, socket: { remoteAddress: '203.0.113.9' } };
const ANONYMOUS = 'anonymous:203.0.113.9';
const START = 1_704_067_200_000_000;
const folder = new URL('../../http/', import.meta.url);

/** A limiter over a policy file, with its clock. */
async function limiting(t, policies, start) {
  const directory = await mkdtemp(join(tmpdir(), 'tidegate-'));
  t.after(() => rm(directory, { recursive: true }));
  const file = join(directory, 'policies.json');
  await writeFile(file, JSON.stringify({ policies }));
  const clock = new ManualClock(start / 1000);
  const limiter = await Limiter.fromFile(file, { store: 'memory://', clock });
  t.after(() => limiter.close());
  return { limiter, clock };
}

async function answers(t, { policies, policy, start = START, steps }) {
  const { limiter, clock } = await limiting(t, policies ?? { p: policy }, start);
  const todo = {
    check: ({ policy = 'p', key = '', cost }) => limiter.check(policy, key, { cost }),
    peek: ({ policy = 'p', key = '', cost }) => limiter.peek(policy, key, { cost }),
    charge: ({ policy = 'p', key = '', cost = 1 }) => limiter.charge(policy, key, cost),
    block: ({ policy = 'p', key = '', for: micros }) => limiter.block(policy, key, micros / 1000),
    check_all: ({ entries }) =>
      limiter.checkAll(entries.map(({ policy = 'p', key = '', cost }) => [policy, key, cost])),
  };
  for (const step of steps) {
    if (step.at !== undefined) clock.advance((start + step.at) / 1000 - clock.now());
    let decision = await todo[step.do](step);
    for (let again = 1; again < (step.times ?? 1); again++) {
      clock.advance((step.every ?? 0) / 1000);
      decision = await todo[step.do](step);
    }
    const { expect = {} } = step;
    const text = JSON.stringify(step);
    if (expect.status !== undefined) assert.equal(decision.allowed ? 200 : status(decision), expect.status, text);
    for (const [choice, wanted] of Object.entries(expect.headers ?? {})) {
      const wait = decision.allowed ? undefined : retryAfter(decision);
      const fields = [];
      announce([decision], choice, wait, (_, name, value) => fields.push([name, value]), undefined);
      assert.deepEqual(fields, wanted, `${choice} of ${text}`);
    }
    if (expect.problem !== undefined) assert.deepEqual(JSON.parse(problem(decision)), expect.problem, text);
  }
}

/** Compares the observations of a response through the public function, and the number of ignored values through the addon. */
function responds({
  response: { headers, status, body },
  now = START / 1e6,
  longest,
  observations: wanted,
  ignored = 0,
}) {
  const [dateMs, maxLearnedWaitMs] = [now * 1000, longest && longest * 1000];
  const said = observations(headers, { dateMs, status, body, maxLearnedWaitMs });
  const ms = (seconds) => Math.round(seconds * 1e6) / 1e3;
  const expected = wanted.map(({ window, reset_after: reset, retry_after: retry, ...rest }) => ({
    ...rest,
    ...(window !== undefined && { windowMs: ms(window) }),
    ...(reset !== undefined && { resetAfterMs: ms(reset) }),
    ...(retry !== undefined && { retryAfterMs: ms(retry) }),
    scope: rest.scope ?? 'key',
  }));
  assert.deepEqual(said, expected);
  const bytes = body === undefined ? undefined : Buffer.from(body);
  assert.equal(native.readResponse(headers.flat(), dateMs, status, bytes, maxLearnedWaitMs).ignored, ignored);
}

function refused({ trusted, ipv6_prefix: ipv6Prefix, headers, error: code, says }) {
  const limiter = new Limiter();
  const asked = () => {
    if (headers !== undefined) return rateLimit({ limiter, policy: '1/minute', headers });
    return clientIp({
      ...(trusted !== undefined && { trustedProxies: trusted }),
      ...(ipv6Prefix !== undefined && { ipv6Prefix }),
    });
  };
  assert.throws(asked, (error) => error.code === code && error.message.includes(says));
}

const files = (await readdir(folder)).filter((name) => /^(?!llm|layered-keys).*\.json$/.test(name));
assert.ok(files.length > 0);
for (const name of files) {
  const { cases } = JSON.parse(await readFile(new URL(name, folder), 'utf8'));
  for (const one of cases) {
    test(`${name}: ${one.name}`, async (t) => {
      if (one.steps !== undefined) await answers(t, one);
      else if (one.forwarded !== undefined) {
        const client = native.clientIp(one.trusted ?? [], one.ipv6_prefix);
        const key = client.key(one.peer, one.forwarded, one.unix ?? false);
        if (one.error === undefined) assert.equal(key, one.key);
        else assert.deepEqual([key.code, key.message.includes(one.says)], [one.error, true], key.message);
      } else if (one.response !== undefined) responds(one);
      else if (one.secret !== undefined) assert.equal(native.hashed(one.secret), one.key);
      else if (one.client !== undefined) assert.equal(native.anonymous(one.client), one.key);
      else if (one.user !== undefined)
        assert.equal(user()({ user: one.user || undefined, ...NO_USER }), one.key || ANONYMOUS);
      else if (one.of !== undefined) assert.equal(placedKey(one.place ?? undefined, one.of, one.method), one.key);
      else refused(one);
    });
  }
}
