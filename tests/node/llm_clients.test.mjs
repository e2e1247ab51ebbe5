// `tidegate/llm` with the real clients of OpenAI, Anthropic and Vercel, against a local service of their wire format.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import Anthropic from '@anthropic-ai/sdk';
import { embed, generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';
import { anthropicPreset, openaiPreset } from 'tidegate/llm';
import { until } from './outgoing_clients.mjs';

const POLICY = '500 requests/minute; 90000 tokens/minute';
const SPLIT = '500 requests/minute; 50000 input-tokens/minute; 20000 output-tokens/minute';
const program = fileURLToPath(new URL('../servers/model_server.py', import.meta.url));

let child;
let url;
let limiter;
beforeEach(async () => {
  child = spawn('python3', [program], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = await once(createInterface(child.stdout), 'line');
  ({ url } = JSON.parse(line));
  limiter = new Limiter({ clock: new ManualClock() });
});
afterEach(async () => {
  await limiter.close();
  child.stdin.end();
  await once(child, 'exit');
});

const ask = async (path) => (await fetch(`${url}${path}`)).json();
const paced = (policy, preset) => pacedFetch({ limiter, policy, ...preset });

/** The policy in the form that a transport uses. */
function asked(policy) {
  const made = new Policy(policy);
  return typeof made.paced === 'function' ? made.paced() : policy;
}

/** The units that calls to the service have used of each limit, on a clock that stands still. */
async function used(policy, names) {
  const cost = Object.fromEntries(names.map((name) => [name, 0]));
  const { limits } = await limiter.peek(asked(policy), `out:${url}`, { cost });
  return limits.map(({ limit, remaining }) => limit - remaining);
}
const usedTokens = () => used(POLICY, ['requests', 'tokens']);
const usedSplit = () => used(SPLIT, ['requests', 'input-tokens', 'output-tokens']);

const asks = (read, answer, more = '') => `read ${read}, answer ${answer}${more}`;
const chat = (read, answer, { text = '', ...more } = {}) => ({
  model: 'm',
  messages: [{ role: 'user', content: asks(read, answer, text) }],
  max_tokens: 100,
  ...more,
});
const words = (count) => 'word '.repeat(count);
const openai = (preset, policy = POLICY) =>
  new OpenAI({ apiKey: 'k', baseURL: `${url}/v1`, fetch: paced(policy, preset) });
const anthropic = (preset, policy = SPLIT) =>
  new Anthropic({ apiKey: 'k', baseURL: url, fetch: paced(policy, preset) });

test('OpenAI settles exactly', async () => {
  const client = openai(openaiPreset({ output: 'used' }));
  let tokens = 0;
  let requests = 0;
  const spent = async (count) => {
    tokens += count;
    assert.deepEqual(await usedTokens(), [++requests, tokens]);
  };
  const whole = await client.chat.completions.create(chat(321, 12));
  assert.equal(whole.choices[0].message.content, words(12));
  await spent(333);
  const options = { stream: true, stream_options: { include_usage: true } };
  let chunks = 0;
  for await (const chunk of await client.chat.completions.create(chat(33, 40, options))) chunks += chunk.choices.length;
  assert.equal(chunks, 41);
  await spent(73);
  assert.equal((await client.responses.create({ model: 'm', input: asks(50, 7) })).output_text, words(7));
  await spent(57);
  let last;
  for await (const { type } of await client.responses.create({ model: 'm', input: asks(60, 9), stream: true }))
    last = type;
  assert.equal(last, 'response.completed');
  await spent(69);
  await client.embeddings.create({ model: 'e', input: [asks(17, 0)], encoding_format: 'float' });
  await spent(17);
  await client.models.list();
  await spent(0);
});

test('OpenAI counts the bound', async () => {
  await openai(openaiPreset()).chat.completions.create(chat(321, 12));
  assert.deepEqual(await usedTokens(), [1, 421]);
});

test('Anthropic settles exactly', async () => {
  const client = anthropic(anthropicPreset());
  await client.messages.create(chat(321, 12));
  assert.deepEqual(await usedSplit(), [1, 321, 12]);
  assert.equal(await client.messages.stream(chat(33, 40)).finalText(), words(40));
  assert.deepEqual(await usedSplit(), [2, 354, 52]);
});

test('the ai package settles exactly', async () => {
  const provider = createOpenAI({
    apiKey: 'k',
    baseURL: `${url}/v1`,
    fetch: paced(POLICY, openaiPreset({ output: 'used' })),
  });
  const made = await generateText({ model: provider.chat('m'), prompt: asks(321, 12), maxOutputTokens: 100 });
  assert.equal(made.text, words(12));
  assert.deepEqual(await usedTokens(), [1, 333]);
  assert.equal(await streamText({ model: provider.chat('m'), prompt: asks(33, 40) }).text, words(40));
  assert.deepEqual(await usedTokens(), [2, 406]);
  assert.equal(await streamText({ model: provider('m'), prompt: asks(50, 7) }).text, words(7));
  assert.deepEqual(await usedTokens(), [3, 463]);
  await embed({ model: provider.embedding('e'), value: asks(17, 0) });
  assert.deepEqual(await usedTokens(), [4, 480]);
  const other = createAnthropic({ apiKey: 'k', baseURL: `${url}/v1`, fetch: paced(SPLIT, anthropicPreset()) });
  assert.equal(await streamText({ model: other('m'), prompt: asks(60, 9), maxOutputTokens: 50 }).text, words(9));
  assert.deepEqual(await usedSplit(), [1, 60, 9]);
});

test('a refusal is the error of the client', async () => {
  const policy = '1 requests/minute; 5000 tokens/minute';
  const client = new OpenAI({
    apiKey: 'k',
    baseURL: `${url}/v1`,
    fetch: pacedFetch({ limiter, policy, timeoutMs: 0, ...openaiPreset() }),
  });
  await client.chat.completions.create(chat(10, 5));
  await assert.rejects(client.chat.completions.create(chat(10, 5)), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.equal(error.headers.get('x-should-retry'), 'false');
    assert.ok(Number(error.headers.get('retry-after')) > 0);
    return true;
  });
  assert.equal((await ask('/-/calls')).length, 1);
});

test('a request that never fits is an error that says so', async () => {
  const big = chat(1, 1, { max_tokens: 100_000 });
  const saysSo = (kind) => (error) => {
    assert.ok(error instanceof kind);
    assert.equal(error.status, 413);
    assert.match(error.message, /at most 90000|raise the limit/);
    return true;
  };
  await assert.rejects(openai(openaiPreset()).chat.completions.create(big), saysSo(OpenAI.APIError));
  const split = anthropicPreset({ units: ['tokens'] });
  const system = 'a'.repeat(400_000);
  await assert.rejects(anthropic(split, POLICY).messages.create({ ...chat(1, 1), system }), saysSo(Anthropic.APIError));
  assert.deepEqual(await ask('/-/calls'), []);
});

for (const status of [400, 404, 429, 500, 503, 529]) {
  test(`a call that failed with ${status} keeps its request and no tokens`, async () => {
    const [one, other] = [openai(openaiPreset()), anthropic(anthropicPreset(), POLICY)];
    const text = ` refuse ${status} 1 times`;
    await assert.rejects(one.chat.completions.create(chat(10, 5, { text }), { maxRetries: 0 }), { status });
    await until(async () => (await usedTokens()).join() === '1,0');
    if (status === 429) return;
    await assert.rejects(other.messages.create(chat(11, 5, { text }), { maxRetries: 0 }), { status });
    await until(async () => (await usedTokens()).join() === '2,0');
  });
}

test('a retry after a failure is charged once', async () => {
  const client = openai(openaiPreset({ output: 'used' }));
  await client.chat.completions.create(chat(321, 23, { text: ' refuse 500 1 times' }));
  await until(async () => (await usedTokens()).join() === '2,344');
});

test('a preset charges what the policy counts', async () => {
  await anthropic(anthropicPreset(), POLICY).messages.create(chat(321, 12));
  await until(async () => (await usedTokens()).join() === '1,333');
  await openai(openaiPreset({ output: 'used' }), SPLIT).chat.completions.create(chat(30, 4));
  await until(async () => (await usedSplit()).join() === '1,30,4');
  await anthropic(anthropicPreset(), '500 requests/minute').messages.create(chat(321, 12));
  assert.deepEqual(await used('500 requests/minute', ['requests']), [1]);
  await anthropic(anthropicPreset(), () => POLICY).messages.create(chat(7, 5));
  await until(async () => (await usedTokens()).join() === '2,345');
  await anthropic(anthropicPreset(), undefined).messages.create(chat(7, 5));
  assert.throws(() => paced(SPLIT, anthropicPreset({ units: ['tokens'] })), {
    code: 'cost_invalid',
    message: /tokens/,
  });
  assert.throws(() => paced('10 images/minute', anthropicPreset()), { code: 'cost_invalid', message: /images/ });
});

test('of twenty streams with cancellations none is lost', async () => {
  const policy = `${SPLIT}; concurrency 20`;
  const client = anthropic(anthropicPreset(), policy);
  const begun = [];
  const streams = Array.from({ length: 20 }, (_, index) => {
    const stream = client.messages.stream(chat(100 + index, 10 + index, { text: ' wait' }));
    begun.push(new Promise((resolve) => stream.once('text', resolve)));
    return stream;
  });
  const texts = streams.map((stream) => stream.finalText().catch((error) => error));
  await Promise.all(begun);
  // All are under way. Every third one is cancelled, before the others go on.
  const isCancelled = (index) => index % 3 === 0;
  for (const [index, stream] of streams.entries()) if (isCancelled(index)) stream.abort();
  await ask('/-/go');
  for (const [index, text] of (await Promise.all(texts)).entries()) {
    if (isCancelled(index)) assert.ok(text instanceof Anthropic.APIUserAbortError, String(text));
    else assert.equal(text, words(10 + index));
  }
  const sum = (of) => Array.from({ length: 20 }, (_, index) => of(index)).reduce((a, b) => a + b);
  // The input of all of them is known. For the cancelled ones, the answer stays as it was charged.
  const expected = [20, sum((index) => 100 + index), sum((index) => (isCancelled(index) ? 100 : 10 + index)), 0];
  const names = ['requests', 'input-tokens', 'output-tokens', 'cost'];
  // A body that was given up is settled when the reader of the response has noticed.
  let now = await used(policy, names);
  for (let round = 0; round < 5_000 && now.join() !== expected.join(); round++) {
    await new Promise((resolve) => setTimeout(resolve, 2));
    now = await used(policy, names);
  }
  assert.deepEqual(now, expected);
});
