// `tidegate/llm`: the costs of model calls. The calls are vectors, in `tests/http/llm.json`.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Limiter, ManualClock, Policy } from 'tidegate';
import { anthropicPreset, openaiPreset } from 'tidegate/llm';

const { neverFits } = await import(new URL('../../bindings-node/dist/never-fits.js', import.meta.url));
const { cases } = JSON.parse(readFileSync(new URL('../http/llm.json', import.meta.url), 'utf8'));
const PRESETS = { openai: openaiPreset, anthropic: anthropicPreset };

function request(body, path = '/v1/chat/completions') {
  return { method: 'POST', url: `https://api.example.com${path}`, headers: new Headers(), body };
}

const chat = (more = {}) =>
  request(
    JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Say hello.' }], max_tokens: 100, ...more }),
  );
const head = { status: 200, headers: new Headers() };
const bytes = (text) => new TextEncoder().encode(text);

describe('vectors', () => {
  assert.ok(cases.length > 30);
  for (const one of cases) {
    test(one.name, () => {
      const { default_output: defaultOutput, ...options } = one.options ?? {};
      const preset = PRESETS[one.preset]({ ...options, ...(defaultOutput !== undefined && { defaultOutput }) });
      for (const call of one.calls) {
        for (let time = 0; time < (call.path === undefined ? 0 : (call.times ?? 1)); time++) {
          const made = request(call.body ?? (call.request && JSON.stringify(call.request)), call.path);
          const charge = preset.cost(made);
          if (call.charge !== undefined) assert.deepEqual(charge, call.charge);
          const chunks = call.answer === undefined ? call.chunks : [JSON.stringify(call.answer)];
          if (chunks === undefined) continue;
          const passing = preset.settle({ ...head, status: call.status ?? 200 }, made);
          for (const chunk of chunks) passing?.feed(bytes(chunk));
          const cost = passing?.end();
          if (call.cost !== undefined) assert.deepEqual(cost ?? null, call.cost);
        }
      }
    });
  }
});

test('a preset is options of a transport', () => {
  for (const preset of [openaiPreset(), anthropicPreset()]) {
    assert.deepEqual(Object.keys(preset).sort(), ['cost', 'learn', 'respond', 'settle']);
  }
  const { priority, learn, respond } = openaiPreset({ priority: 'batch', learn: false });
  assert.deepEqual([priority, learn, respond], ['batch', false, true]);
});

test('a tokenizer counts the texts', () => {
  const texts = [];
  const tokenizer = (text) => texts.push(text) * 0 + 50;
  const made = chat({ tools: [{ type: 'function' }] });
  // 50 for each text, (16 + 12 + 64) / 4 around them, 100 for the answer.
  assert.deepEqual(openaiPreset({ tokenizer }).cost(made), { tokens: 2 * 50 + 23 + 100 });
  assert.deepEqual(texts, ['Say hello.', '[{"type":"function"}]']);
  assert.deepEqual(openaiPreset({ tokenizer: (text) => [...text] }).cost(chat()), { tokens: 10 + 7 + 100 });
  for (const wrong of [() => undefined, () => 1.5, () => -1, () => 'a'.length / 0]) {
    assert.throws(() => openaiPreset({ tokenizer: wrong }).cost(chat()), {
      code: 'config_invalid',
      message: /tokenizer returned/,
    });
  }
  const broken = () => {
    throw new RangeError('no such model');
  };
  assert.throws(() => openaiPreset({ tokenizer: broken }).cost(chat()), /no such model/);
});

test('bodies that are text, bytes, or not known', () => {
  const { body } = chat();
  for (const given of [body, bytes(body), Buffer.from(body)]) {
    assert.deepEqual(openaiPreset().cost(request(given)), { tokens: 110 });
  }
  assert.deepEqual(openaiPreset().cost(request(undefined)), { tokens: 0 });
});

test('answers of two presets and of many calls do not mix', () => {
  const [one, other] = [openaiPreset({ output: 'used' }), openaiPreset({ output: 'used' })];
  const requests = Array.from({ length: 20 }, () => chat());
  for (const made of requests) one.cost(made);
  assert.equal(other.settle(head, requests[0]), undefined);
  const readers = requests.map((made) => one.settle(head, made));
  for (const [number, reader] of readers.entries()) {
    reader.feed(bytes('{"usage": {"prompt_tokens": 1, "completion_'));
    reader.feed(bytes(`tokens": ${number}}}`));
  }
  assert.deepEqual(
    readers.map((reader) => reader.end()),
    requests.map((_, number) => ({ tokens: 1 + number })),
  );
});

test('a second attempt is a call of its own', () => {
  const preset = openaiPreset();
  const made = chat();
  for (let attempt = 0; attempt < 2; attempt++) {
    preset.cost(made);
    assert.equal(preset.settle(head, made).end(), undefined);
    assert.equal(preset.settle(head, made), undefined);
  }
});

test('wrong options say what is wrong', () => {
  for (const preset of Object.values(PRESETS)) {
    for (const [options, says] of [
      [7, /cannot take 7/],
      [{ outptu: 'used' }, /did you mean output/],
      [{ tokenizer: 7 }, /tokenizer must be .*, not 7/],
      [{ units: 'tokens' }, /units must be/],
      [{ units: [] }, /units must be/],
      [{ units: ['words'] }, /units must be/],
      [{ output: 'later' }, /output must be/],
      [{ defaultOutput: -1 }, /defaultOutput must be .*, not -1/],
      [{ defaultOutput: 1.5 }, /defaultOutput must be .*, not 1.5/],
    ]) {
      assert.throws(() => preset(options), { code: 'config_invalid', message: says });
    }
  }
});

test('a call that never fits says so', async () => {
  const limiter = new Limiter({ clock: new ManualClock() });
  const policy = '500 requests/minute; 90000 tokens/minute';
  const decision = await limiter.acquire(policy, 'k', { cost: { tokens: 120_000 }, timeoutMs: 60_000 });
  assert.equal(decision.retryAfterMs, null);
  const error = neverFits(decision);
  assert.equal(error.code, 'cost_invalid');
  for (const said of ['120000 tokens', 'at most 90000', 'Make the call smaller', 'raise the limit']) {
    assert.ok(error.message.includes(said), error.message);
  }
  const whole = { cost: { tokens: 90_000 } };
  assert.equal(neverFits(await limiter.check(policy, 'k', whole)), undefined);
  // The used units come back, so the cost fits later.
  assert.equal(neverFits(await limiter.check(policy, 'k', whole)), undefined);
  assert.equal(neverFits(await limiter.check(new Policy('5/minute', { shadow: true }), 'k', { cost: 7 })), undefined);
  // Nothing is ever admitted, so the cost is not the reason.
  assert.equal(neverFits(await limiter.check('0/minute', 'k')), undefined);
  assert.match(neverFits(await limiter.check('5/minute', 'k', { cost: 7 })).message, /a call of 7 units/);
});
