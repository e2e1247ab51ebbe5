// Calls that go out, from a separate process. It prints that it is ready, and reads a task as JSON, which
// tests/python/outgoing_share.py describes. It writes its answers by their status, and the times when it sent the refused requests.

import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { Limiter } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';

console.log('ready');
const [line] = await once(createInterface(process.stdin), 'line');
const told = JSON.parse(line);
const limiter = new Limiter({ store: told.store, prefix: told.prefix, timeoutMs: 5_000 });
const cost = told.tokens ? ({ body }) => ({ tokens: JSON.parse(body).tokens }) : undefined;
const fetch = pacedFetch({
  limiter,
  policy: told.policy ?? undefined,
  timeoutMs: Number.POSITIVE_INFINITY,
  cost,
  fetch: sentNow,
});
const answers = {};
// The time when a refused request was sent, by its target.
const refused = {};
let calls = 0;

/** Sends a request, after it has waited for its turn. */
async function sentNow(url, init) {
  const sent = Date.now() / 1000;
  const response = await globalThis.fetch(url, init);
  if (response.status === 429) {
    const { pathname, search } = new URL(url);
    refused[pathname + search] = sent;
  }
  return response;
}

function options() {
  if (!told.tokens) return undefined;
  const least = Math.floor(told.tokens / 2);
  const tokens = least + Math.floor(Math.random() * (told.tokens - least + 1));
  return { method: 'POST', body: JSON.stringify({ tokens }) };
}

async function call() {
  while (Date.now() < told.until * 1000) {
    const response = await fetch(`${told.url}&call=${process.pid}-${calls++}`, options());
    await response.arrayBuffer();
    answers[response.status] = (answers[response.status] ?? 0) + 1;
  }
}

await Promise.race([
  Promise.all(Array.from({ length: told.callers }, call)),
  delay(Math.max(0, told.until * 1000 + 500 - Date.now())),
]);
// Calls that still wait for a turn do not keep the process.
process.stdout.write(`${JSON.stringify({ answers, sent: refused })}\n`, () => process.exit());
