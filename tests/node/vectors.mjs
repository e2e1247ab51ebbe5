// Behaviour as data: runs the cases of tests/vectors on a limiter.

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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
    // In microseconds; the clock takes milliseconds.
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

/** A text; a long one is written as a part and how often it repeats. */
function text(value) {
  return value !== null && typeof value === 'object' && 'repeat' in value ? value.repeat.repeat(value.times) : value;
}

/** A number; one that JSON cannot write is written as an object. */
function number(value) {
  if (value === null || typeof value !== 'object') return value;
  if ('float' in value) return value.float === 'nan' ? NaN : Infinity;
  return Object.fromEntries(Object.entries(value).map(([name, units]) => [name, number(units)]));
}

/** A limiter, its clock, and what the steps of a case have named. */
class History {
  #named = new Map();
  #holds = new Map();

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
    const { error, column, says, ...wanted } = step.expect ?? {};
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

  /** The fields of a Decision, which a later step may name. */
  #fieldsOf(step, decision) {
    if (step.as !== undefined) this.#named.set(step.as, decision);
    return fieldsOf(decision);
  }

  async #act(step) {
    const { limiter } = this;
    const policy = step.policy ?? 'p';
    const key = text(step.key);
    const cost = 'cost' in step ? number(step.cost) : 1;
    // A class, for the calls that have one.
    const ofClass = 'priority' in step ? { priority: step.priority } : {};
    switch (step.do) {
      case 'check': {
        const { partial = false } = step;
        const meta = 'meta' in step ? { meta: text(step.meta) } : {};
        const options = { cost, partial, ...meta, ...ofClass };
        const decision = await limiter.check(policy, key, options);
        return this.#fieldsOf(step, decision);
      }
      case 'peek':
        return this.#fieldsOf(step, await limiter.peek(policy, key, { cost, ...ofClass }));
      case 'charge': {
        const isMap = cost !== null && typeof cost === 'object';
        return this.#fieldsOf(step, await limiter.charge(policy, key, isMap ? { cost } : cost));
      }
      case 'refund':
        await limiter.refund(policy, key, { cost });
        return {};
      case 'settle':
        await limiter.settle(this.#named.get(step.of), cost);
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
