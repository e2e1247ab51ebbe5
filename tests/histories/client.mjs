// A client that records its calls, several at a time, until stdin closes.
//
// It gets one JSON object: see `tests/rust/src/call_records/programs.rs`. A line of its output is a call, in the form of
// `tests/rust/src/call_records/record.rs`.

import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Decision, Limiter, TidegateError } from 'tidegate';
import binding from '../../bindings-node/binding/index.js';
import decision from '../../bindings-node/dist/decision.js';
import { fieldsOf } from '../node/decision_fields.mjs';

const LONGEST_WAIT = 400;

const plan = JSON.parse(process.argv[2]);
const lines = [];
let over = false;

const below = (end) => Math.floor(Math.random() * end);
const pick = (from) => from[below(from.length)];

/** A call on one of the keys of this moment. */
function drawCall() {
  const { policies, groups } = plan;
  const now = Number(process.hrtime.bigint() / BigInt(plan.slice));
  const number = below(groups);
  const at = now * groups + number;
  const name = `${plan.run}-${now}-${number}`;
  const policy = policies[at % policies.length];
  const other = policies[(at + 5) % policies.length];
  const kind = below(100);
  const call = (operation, cost = 1, length = 0) => ({
    group: name,
    operation,
    entries: [[policy, name, cost]],
    length,
  });
  if (kind < 72) return call('check', pick([1, 1, 1, 1, 2, 3]));
  if (kind < 80) return call('peek');
  if (kind < 83) return call('charge');
  if (kind < 88) return call('refund');
  if (kind < 90) return call('clear');
  if (kind < 93) return call('block', 1, pick([0, 60_000, 120_000]));
  if (kind === 93 && policy in plan.own) return call('override', 1, below(2));
  const all = call('check_all');
  all.entries.push([plan.across_policies ? other : policy, name, 1]);
  return all;
}

function start(limiter, { operation, entries, length }) {
  const [policy, key, cost] = entries[0];
  switch (operation) {
    case 'check':
      return limiter.check(policy, key, { cost });
    case 'peek':
      return limiter.peek(policy, key, { cost });
    case 'charge':
      return limiter.charge(policy, key, cost);
    case 'refund':
      return limiter.refund(policy, key, cost);
    case 'clear':
      return limiter.clear(policy, key);
    case 'override':
      return limiter.override(policy, key, length > 0 ? plan.own[policy] : null);
    case 'check_all':
      return limiter.checkAll(entries);
    default:
      return length === 0 ? limiter.unblock(policy, key) : limiter.block(policy, key, length / 1000);
  }
}

function outcomeOf(answer) {
  if (!(answer instanceof Decision)) return 'done';
  if (answer.source !== 'store') return 'local';
  // A Date has no microseconds, so the store's time is read where the Decision keeps it.
  return { at: decision.numbersOf(answer)[binding.DecisionField.At], decision: fieldsOf(answer) };
}

async function run(limiter, client) {
  for (let number = 0; !over; ) {
    const call = drawCall();
    for (const isSecond of [false, true]) {
      const begin = process.hrtime.bigint();
      let answer;
      try {
        answer = await start(limiter, call);
      } catch (error) {
        if (!(error instanceof TidegateError)) throw error;
        answer = error;
      }
      const times = { begin: Number(begin), end: Number(process.hrtime.bigint()) };
      const failed = answer instanceof TidegateError;
      const outcome = failed ? { error: answer.code } : outcomeOf(answer);
      lines.push(JSON.stringify({ ...call, client, number: number++, ...times, outcome }));
      if (failed) await sleep(plan.after_error * 1000);
      const wait = answer instanceof Decision && !answer.allowed ? answer.retryAfterMs : null;
      if (isSecond || wait === null || wait > LONGEST_WAIT || below(4) > 0) break;
      await sleep(wait);
    }
    await sleep(Math.random() * plan.pause * 1000);
  }
}

const options = { store: plan.url, timeoutMs: plan.timeout * 1000, onStoreError: 'raise', denyCacheMs: 0 };
const limiter = await Limiter.fromFile(plan.file, options);
const running = Array.from({ length: 3 }, (_, number) => run(limiter, `${plan.name}-${number}`));
console.log('ready');
for await (const _ of process.stdin);
over = true;
await Promise.all(running);
limiter.close();
process.stdout.write(`${lines.join('\n')}\n`);
