import { clockOf, ManualClock } from './clock.js';
import { ConfigError, PolicyError, shown } from './errors.js';
import { done, native } from './native.js';
import { type Limit, type OnStoreError, Policy, type PolicyOptions, policyOf } from './policy.js';
import { Rollout, sidesOf } from './rollout.js';
import type { Logger, StoreChange } from './store-changes.js';

/** What a limiter is told besides its policies. */
export interface LimiterOptions {
  /**
   * Where usage lives, as a URL: `memory://`, `redis://`, `rediss://`, `redis+unix://`, `valkey://`, … ; a list of them,
   * sharded by key; or a `rollout` from one to another. `memory://` when not said.
   */
  store?: string | readonly string[] | Rollout;
  /** Policies by name, as notations, Policies, or limits with options as in a policy file. */
  policies?: Readonly<Record<string, string | Policy | PolicyDescription>>;
  /** What every key in Redis begins with; `tg` when not said. */
  prefix?: string;
  /** The longest a call waits for the store; 250 ms when not said. */
  timeoutMs?: number;
  /** What a check answers when the store fails; `local` when not said. */
  onStoreError?: OnStoreError;
  /** How long a denial is repeated without asking the store, at most; 1,000 ms when not said, 0 is off. */
  denyCacheMs?: number;
  /** A clock for tests, whose time decides instead of the store's. */
  clock?: ManualClock;
  /**
   * Who is told in one line when a store is lost, refuses, or is back: `console`, say. Warnings of the process when not
   * said; false is nobody.
   */
  logger?: Logger | false;
  /** Called with each such change. */
  onChange?: (change: StoreChange) => void;
}

/** A policy as a policy file describes it. */
export interface PolicyDescription extends Omit<PolicyOptions, 'name'> {
  /** A notation, a Limit, or several of both. */
  limits: string | Limit | readonly (string | Limit)[];
}

const OPTIONS = [
  'store',
  'policies',
  'prefix',
  'timeoutMs',
  'onStoreError',
  'denyCacheMs',
  'clock',
  'logger',
  'onChange',
];

function option<T>(options: object, name: keyof T & string, type: string): void {
  const value = (options as Record<string, unknown>)[name];
  if (value !== undefined && typeof value !== type) {
    throw new ConfigError(`${name} cannot be ${shown(value)}: it must be a ${type}`);
  }
}

/** What is described by options, and by a file where there is one. */
export function opening(options: LimiterOptions, file: string | undefined): native.LimiterBuilder {
  if (typeof options !== 'object' || options === null) {
    throw new ConfigError(`a limiter cannot be made from ${shown(options)}: give an object of options`);
  }
  for (const name of Object.keys(options)) {
    if (!OPTIONS.includes(name)) {
      throw new ConfigError(`a limiter has no option ${name}: it has ${OPTIONS.join(', ')}`);
    }
  }
  for (const name of ['prefix', 'onStoreError'] as const) option<LimiterOptions>(options, name, 'string');
  for (const name of ['timeoutMs', 'denyCacheMs'] as const) option<LimiterOptions>(options, name, 'number');
  option<LimiterOptions>(options, 'policies', 'object');
  const { store, policies, prefix, timeoutMs, onStoreError, denyCacheMs, clock } = options;
  const made = native.LimiterBuilder.empty();
  if (file !== undefined) done(made.file(file));
  if (store instanceof Rollout) done(made.rollout(...sidesOf(store), store.percent));
  else if (store !== undefined) done(made.store(stores(store)));
  for (const [name, policy] of Object.entries(policies ?? {})) done(made.policy(name, policyOf(named(name, policy))));
  if (prefix !== undefined) done(made.prefix(prefix));
  if (timeoutMs !== undefined) done(made.timeout(timeoutMs));
  if (onStoreError !== undefined) done(made.onStoreError(onStoreError));
  if (denyCacheMs !== undefined) done(made.denyCache(denyCacheMs));
  if (clock !== undefined) {
    if (!(clock instanceof ManualClock)) throw new ConfigError(`clock cannot be ${shown(clock)}: give a ManualClock`);
    made.clock(clockOf(clock));
  }
  return made;
}

function named(name: string, policy: string | Policy | PolicyDescription): Policy {
  if (policy instanceof Policy) return policy;
  if (typeof policy === 'string') return new Policy(policy);
  if (typeof policy !== 'object' || policy === null || !('limits' in policy)) {
    throw new PolicyError(
      `the policy ${name} cannot be ${shown(policy)}: give a notation, a Policy, or limits with options`,
    );
  }
  const { limits, ...options } = policy;
  return new Policy(limits, options);
}

function stores(store: string | readonly string[]): string[] {
  const all: readonly unknown[] = Array.isArray(store) ? store : [store];
  const urls = all.filter((url) => typeof url === 'string');
  if (urls.length !== all.length) throw new ConfigError('a store is named by its URL, a string');
  return urls;
}
