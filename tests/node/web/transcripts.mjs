// Writes the behaviour of each adapter of Node for the requests of `tests/transcripts` into the transcripts there:
//
//     node tests/node/web/transcripts.mjs
//
// Look at the difference in git before you commit it, because it is a change of behaviour.

import { readFileSync, writeFileSync } from 'node:fs';
import process from 'node:process';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { Limiter, ManualClock } from 'tidegate';
import { adapters } from './adapters.mjs';
import { get, settled } from './client.mjs';

const folder = new URL('../../transcripts/', import.meta.url);
const TRANSCRIPTS = new URL('transcripts.json', folder);
const ADDRESS = '127.0.0.1';
const FIELDS = ['RateLimit-Policy', 'RateLimit', 'Retry-After'];

export const cases = () => JSON.parse(readFileSync(new URL('requests.json', folder), 'utf8')).cases;
export const known = () => JSON.parse(readFileSync(TRANSCRIPTS, 'utf8'));

/** The name of an option in Node. */
const named = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
/** The status of a response of any framework. */
const statusOf = (given) => given?.statusCode ?? given?.res?.status ?? given?.status;
const isFunction = (said) => typeof said === 'object' && said !== null && 'returns' in said;

/** The events of the requests of a case, in order. */
export async function transcript({ start, plainDenials }, { policies, limit, requests, held = {} }) {
  const lines = [];
  const limiter = new Limiter({ policies, clock: new ManualClock(1_704_067_200_000) });
  const key = limit.key?.returns ?? ADDRESS;
  const countsTokens = (name) => JSON.stringify(policies[name]).includes('tokens');
  const left = async () => {
    const all = Object.keys(policies)
      .sort()
      .map(async (name) => {
        const { limits } = await limiter.peek(name, key, { cost: countsTokens(name) ? { tokens: 1 } : 1 });
        return `${name} ${limits.map((limit) => limit.remaining).join(' and ')}`;
      });
    return (await Promise.all(all)).join(', ');
  };
  const recorded =
    (name, answer) =>
    (...given) => {
      const status = ['refund_when', 'settle'].includes(name) ? given.map(statusOf).find(Number.isInteger) : undefined;
      lines.push(status === undefined ? name : `${name}, told of ${status}`);
      return typeof answer === 'function' ? answer(...given) : answer;
    };
  const options = Object.entries(limit).map(([name, said]) => {
    if (!isFunction(said)) return [named(name), said];
    return [named(name), recorded(name, name === 'on_denied' ? plainDenials[0] : said.returns)];
  });
  let wanted = {};
  async function* parts(count) {
    for (let number = 1; number <= count; number++) {
      lines.push(`part ${number}: ${await left()}`);
      yield 'part';
    }
  }
  const handler = async () => {
    lines.push(`view: ${await left()}`);
    return { status: wanted.status ?? 200, body: wanted.parts ? Readable.from(parts(wanted.parts)) : 'ok' };
  };
  const holds = await Promise.all(Object.entries(held).map(([policy, cost]) => limiter.hold(policy, key, { cost })));
  let server;
  try {
    server = await start({ handler, limits: [{ limiter, ...Object.fromEntries(options) }] });
  } catch (error) {
    return [`${error.code} where the limit is written`];
  }
  try {
    for (const { view = {} } of requests) {
      wanted = view;
      lines.push(answered(await get(server.url)));
      await settled();
      lines.push(`after: ${await left()}`);
    }
  } finally {
    await server.close();
  }
  await Promise.all(holds.map((hold) => hold.release()));
  const counts = Object.entries(limiter.stats().policies).map(
    ([name, { allowed, denied }]) => `${name} ${allowed} allowed and ${denied} denied`,
  );
  lines.push(`counted: ${counts.join(', ')}`);
  limiter.close();
  return lines;
}

function answered({ status, headers, body }) {
  const fields = FIELDS.filter((name) => name.toLowerCase() in headers);
  const shown = fields.map((name) => ` ${name}: ${headers[name.toLowerCase()]}`).join('');
  return `${status}${shown}${status === 429 && body.includes('violated-policies') ? ' problem' : ''}`;
}

/** Adds the transcript of an adapter. Adapters with the same behaviour stand together. */
function merged(groups, adapter, lines) {
  for (const group of groups) group.adapters = group.adapters.filter((other) => other !== adapter);
  const same = groups.find((group) => JSON.stringify(group.lines) === JSON.stringify(lines));
  if (same) same.adapters = [...same.adapters, adapter].sort();
  else groups.push({ adapters: [adapter], lines });
  return groups.filter((group) => group.adapters.length > 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const all = known();
  for (const adapter of adapters) {
    for (const one of cases()) {
      all[one.name] = merged(all[one.name] ?? [], adapter.name, await transcript(adapter, one));
    }
  }
  const sorted = Object.fromEntries(Object.entries(all).sort(([one], [other]) => (one < other ? -1 : 1)));
  writeFileSync(TRANSCRIPTS, `${JSON.stringify(sorted, null, 2)}\n`);
}
