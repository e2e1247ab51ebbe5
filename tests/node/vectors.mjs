// Behaviour as data: runs the cases of tests/vectors on a limiter.

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Limiter, ManualClock, RateLimited } from 'tidegate';
import { fieldsOf, micros } from './decision_fields.mjs';

const FOLDER = new URL('../vectors/', import.meta.url);
const START = 1_704_067_200_000_000;

/** Every case of every file, named `file: case`. */
export function cases() {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.json') && !name.endsWith('.schema.json'));
  return files.flatMap((file) => {
    const { cases } = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8'));
    return cases.map((one) => ({ ...one, name: `${file.replace('.json', '')}: ${one.name}` }));
  });
}

/** Runs a case on a store. It rejects when a step differs from the vector. */
export async function run(one, store, prefix) {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  const path = join(folder, 'policies.json');
  const write = ({ policy, policies = { p: policy } }) => writeFileSync(path, JSON.stringify({ policies }));
  let limiter;
  try {
    const start = one.start ?? START;
    // In microseconds. The clock takes milliseconds.
    const clock = new ManualClock(start / 1000);
    let failure;
    try {
      write(one);
      limiter = await Limiter.fromFile(path, { store, prefix, clock, timeoutMs: 20_000 });
    } catch (error) {
      failure = error;
    }
    if (failure !== undefined) throw failure;
    const history = new History(limiter, clock, start, write);
    for (const [index, step] of one.steps.entries()) {
      try {
        await history.step(step);
      } catch (error) {
        throw new Error(`${one.name}, step ${index} ${JSON.stringify(step).slice(0, 400)}\n${error.stack}`);
      }
    }
  } finally {
    await limiter?.close();
    rmSync(folder, { recursive: true });
  }
}

/** A text. A long one is written as a part and the number of its repetitions. */
function text(value) {
  return value !== null && typeof value === 'object' && 'repeat' in value ? value.repeat.repeat(value.times) : value;
}

/** A number. If JSON cannot write it, the vector has an object. */
function number(value) {
  if (value === null || typeof value !== 'object') return value;
  if ('float' in value) return value.float === 'nan' ? NaN : Infinity;
  return Object.fromEntries(Object.entries(value).map(([name, units]) => [name, number(units)]));
}

/** Waits until a condition holds. No call takes that long unless something is broken. */
async function until(holds, what) {
  const deadline = performance.now() + 20_000;
  while (!holds()) {
    assert.ok(performance.now() < deadline, `waited in vain until ${what}`);
    await sleep(1);
  }
}

/** A call that may wait, and the time of the clock at its answer. */
class WaitingCall {
  #controller = new AbortController();
  #cancelled = new Error('cancelled');

  constructor(limiter, clock, { do: call, timeout, priority, meta }, [policy, key, cost]) {
    Object.assign(this, { policy, key });
    const options = { cost, timeoutMs: timeout === null ? Infinity : timeout / 1000, signal: this.#controller.signal };
    if (priority !== undefined) options.priority = priority;
    if (meta !== undefined) options.meta = text(meta);
    const answered = (answer) => {
      this.answered = { at: clock.now(), ...answer };
    };
    const failed = (error) => answered(error instanceof RateLimited ? { answer: error.decision } : { error });
    limiter[call](policy, key, options).then((answer) => answered({ answer }), failed);
  }

  async cancel() {
    this.#controller.abort(this.#cancelled);
    await until(() => this.answered, 'it has ended');
    assert.equal(this.answered.error, this.#cancelled);
  }
}

/** A limiter, its clock, and the named answers of a case. */
class History {
  #named = new Map();
  #holds = new Map();
  #waiting = new Map();

  constructor(limiter, clock, start, write) {
    Object.assign(this, { limiter, clock, start, write });
  }

  #set(at) {
    this.now = at;
    this.clock.set((this.start + at) / 1000);
  }

  async step(step) {
    if (step.at !== undefined) this.#set(step.at);
    for (let time = 1; time < (step.times ?? 1); time++) {
      await this.#act(step).catch(() => {});
      this.#set((this.now ?? 0) + (step.every ?? 0));
    }
    // Only in Rust a Decision has the time when it was made.
    const { error, column, says, at: _, ...wanted } = step.expect ?? {};
    let found;
    try {
      found = await this.#act(step);
    } catch (failure) {
      if (error === undefined) throw failure;
      assert.equal(failure.code, error, failure.message);
      if (column !== undefined) assert.equal(failure.place?.column, column);
      if (says !== undefined) assert.ok(failure.message.includes(says), failure.message);
      return;
    }
    assert.equal(error, undefined, `an error was expected, the result was ${JSON.stringify(found)}`);
    compare(found, wanted);
  }

  /** The fields of a Decision. A later step may refer to it by name. */
  #fieldsOf(step, decision) {
    if (step.as !== undefined) this.#named.set(step.as, decision);
    return fieldsOf(decision);
  }

  /** Begins a call that may wait. If the step does not count the waiting calls, it returns the answer. */
  async #begin(step, about) {
    this.#waiting.set(step.as, new WaitingCall(this.limiter, this.clock, step, about));
    if (!('waiting' in step)) return this.#answerOf(step.as);
    await this.#seeWaiting(step.as, step);
    // The first of a line stands there already when it asks the store, so this waits for its answer.
    await this.limiter.ping();
    assert.equal(this.#waiting.get(step.as).answered, undefined, 'it does not wait');
    return {};
  }

  async #seeWaiting(name, { waiting }) {
    if (waiting === undefined) return;
    const { policy, key } = this.#waiting.get(name);
    await until(() => this.limiter.waiting(policy, key) === waiting, `${waiting} wait`);
  }

  /** The answer of a call, which comes at this moment of the clock. */
  async #answerOf(name) {
    const call = this.#waiting.get(name);
    await until(() => call.answered, 'it is answered');
    const { at, answer, error } = call.answered;
    assert.equal(at, this.clock.now(), 'it was answered before');
    if (error !== undefined) throw error;
    if (answer.decision !== undefined) this.#holds.set(name, answer);
    return this.#fieldsOf({ as: name }, answer.decision ?? answer);
  }

  /** Peeks until the answer is the expected one, or the deadline is over. */
  async #peekUntil(expected, [policy, key, options]) {
    const deadline = performance.now() + 20_000;
    for (;;) {
      const found = fieldsOf(await this.limiter.peek(policy, key, options));
      try {
        compare(found, expected);
        return found;
      } catch (error) {
        if (performance.now() > deadline) throw error;
        await sleep(1);
      }
    }
  }

  async #act(step) {
    const { limiter } = this;
    const policy = step.policy ?? 'p';
    const key = text(step.key);
    const cost = 'cost' in step ? number(step.cost) : 1;
    // A class, for the calls that have one.
    const ofClass = 'priority' in step ? { priority: step.priority } : {};
    if ('timeout' in step) return this.#begin(step, [policy, key, cost]);
    switch (step.do) {
      case 'await':
        return this.#answerOf(step.of);
      case 'waits':
        // While this call goes to the store and back, a call that was woken has time to end.
        await limiter.ping();
        await this.#seeWaiting(step.of, step);
        assert.equal(this.#waiting.get(step.of).answered, undefined);
        return {};
      case 'cancel':
        await this.#waiting.get(step.of).cancel();
        await this.#seeWaiting(step.of, step);
        return {};
      case 'check': {
        const { partial = false } = step;
        const meta = 'meta' in step ? { meta: text(step.meta) } : {};
        const options = { cost, partial, ...meta, ...ofClass };
        const decision = await limiter.check(policy, key, options);
        return this.#fieldsOf(step, decision);
      }
      case 'peek':
        if (step.eventually) return this.#peekUntil(step.expect, [policy, key, { cost, ...ofClass }]);
        return this.#fieldsOf(step, await limiter.peek(policy, key, { cost, ...ofClass }));
      case 'charge': {
        const isMap = cost !== null && typeof cost === 'object';
        return this.#fieldsOf(step, await limiter.charge(policy, key, isMap ? { cost } : cost));
      }
      case 'refund':
        await limiter.refund(policy, key, { cost });
        return {};
      case 'settle':
        await (this.#holds.get(step.of)?.settle(cost) ?? limiter.settle(this.#named.get(step.of), cost));
        return {};
      case 'block':
        await limiter.block(policy, key, step.for / 1000);
        return {};
      case 'override':
        await limiter.override(policy, key, step.limits, 'ttl' in step ? { ttlMs: step.ttl / 1000 } : {});
        return {};
      case 'unblock':
        await limiter.unblock(policy, key);
        return {};
      case 'clear':
        await limiter.clear(policy, key);
        return {};
      case 'journal': {
        const attempts = await limiter.journal(policy, key);
        const line = ({ at, allowed, cost, meta }) => ({ at: micros(at) - this.start, allowed, cost, meta });
        return { attempts: attempts.map(line) };
      }
      case 'hold':
        try {
          const hold = await limiter.hold(policy, key, { cost, ...ofClass });
          this.#holds.set(step.as, hold);
          return this.#fieldsOf(step, hold.decision);
        } catch (error) {
          if (!(error instanceof RateLimited)) throw error;
          return fieldsOf(error.decision);
        }
      case 'release':
        await this.#holds.get(step.of).release();
        return {};
      case 'check_all':
        return this.#fieldsOf(
          step,
          await limiter.checkAll(
            step.entries.map(({ policy, key, cost = 1, priority }) => {
              const entry = { policy, key: text(key), cost: number(cost) };
              return priority === undefined ? entry : { ...entry, priority };
            }),
          ),
        );
      case 'change':
        this.write(step);
        await limiter.reload();
        return {};
      default:
        throw new Error(`a step cannot ${step.do}`);
    }
  }
}

/** Compares the fields that the vector names. */
function compare(found, wanted) {
  for (const [name, value] of Object.entries(wanted)) {
    if (Array.isArray(value)) {
      assert.equal(found[name].length, value.length, name);
      for (const [index, item] of value.entries()) compare(found[name][index], item);
    } else {
      assert.deepEqual(found[name], value, `${name}: ${JSON.stringify(found)}`);
    }
  }
}
