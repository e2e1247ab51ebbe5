import { ManualClock, nativeClockOf } from './clock.js';
import { ConfigError, checkText, describe, PolicyError, shortened } from './errors.js';
import { native, throwIfFailed } from './native.js';
import { type Limit, nativePolicyOf, type OnStoreError, Policy, type PolicyOptions } from './policy.js';
import { Rollout, urlsOf } from './rollout.js';
import type { Logger, StoreChange } from './store-changes.js';

/** The options of a limiter. */
export interface LimiterOptions {
  /**
   * Where usage is stored, as a URL: `memory://`, `redis://`, `rediss://`, `redis+unix://`, `valkey://`, … ; a list of them,
   * sharded by key; or a `rollout` from one to another. Default `memory://`.
   */
  store?: string | readonly string[] | Rollout;
  /** Policies by name, as notations, Policies, or limits with options as in a policy file. */
  policies?: Readonly<Record<string, string | Policy | PolicyDescription>>;
  /** The prefix of every key in Redis. Default `tg`. */
  prefix?: string;
  /** The longest a call waits for the store. Default 250 ms. */
  timeoutMs?: number;
  /** What a check answers when the store fails. Default `local`. */
  onStoreError?: OnStoreError;
  /** The longest that a denial is repeated without asking the store. Default 1,000 ms; 0 turns it off. */
  denyCacheMs?: number;
  /** A clock for tests, whose time is used instead of the store's. */
  clock?: ManualClock;
  /**
   * Takes one line when a store is lost, refuses, or is back; `console` is a logger. Default: warnings of the process. False
   * turns it off.
   */
  logger?: Logger | false;
  /** Called with each of these changes. */
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

function checkType<T>(options: object, name: keyof T & string, type: string): void {
  const value = (options as Record<string, unknown>)[name];
  if (value !== undefined && typeof value !== type) {
    throw new ConfigError(`${name} cannot be ${describe(value)}: it must be a ${type}`);
  }
  if (typeof value === 'string') checkText(value, name);
}

/** The native builder of a limiter, from its options and from a policy file if there is one. */
export function builderOf(options: LimiterOptions, file: string | undefined): native.LimiterBuilder {
  if (typeof options !== 'object' || options === null) {
    throw new ConfigError(`a limiter cannot be made from ${describe(options)}: give an object of options`);
  }
  for (const name of Object.keys(options)) {
    if (!OPTIONS.includes(name)) {
      throw new ConfigError(`a limiter has no option ${name}: it has ${OPTIONS.join(', ')}`);
    }
  }
  for (const name of ['prefix', 'onStoreError'] as const) checkType<LimiterOptions>(options, name, 'string');
  for (const name of ['timeoutMs', 'denyCacheMs'] as const) checkType<LimiterOptions>(options, name, 'number');
  checkType<LimiterOptions>(options, 'policies', 'object');
  const { store, policies, prefix, timeoutMs, onStoreError, denyCacheMs, clock } = options;
  const builder = native.LimiterBuilder.create();
  if (file !== undefined) checkText(file, 'the path of a policy file', PolicyError);
  if (file !== undefined) throwIfFailed(builder.file(file));
  if (store instanceof Rollout) throwIfFailed(builder.rollout(...urlsOf(store), store.percent));
  else if (store !== undefined) throwIfFailed(builder.store(urlsIn(store)));
  for (const [name, policy] of Object.entries(policies ?? {})) {
    checkText(name, 'the name of a policy', PolicyError);
    throwIfFailed(builder.policy(name, nativePolicyOf(policyNamed(name, policy))));
  }
  if (prefix !== undefined) throwIfFailed(builder.prefix(prefix));
  if (timeoutMs !== undefined) throwIfFailed(builder.timeout(timeoutMs));
  if (onStoreError !== undefined) throwIfFailed(builder.onStoreError(onStoreError));
  if (denyCacheMs !== undefined) throwIfFailed(builder.denyCache(denyCacheMs));
  if (clock !== undefined) {
    if (!(clock instanceof ManualClock))
      throw new ConfigError(`clock cannot be ${describe(clock)}: give a ManualClock`);
    builder.clock(nativeClockOf(clock));
  }
  return builder;
}

function policyNamed(name: string, policy: string | Policy | PolicyDescription): Policy {
  if (policy instanceof Policy) return policy;
  if (typeof policy === 'string') return new Policy(policy);
  if (typeof policy !== 'object' || policy === null || !('limits' in policy)) {
    throw new PolicyError(
      `the policy ${shortened(name)} cannot be ${describe(policy)}: give a notation, a Policy, or limits with options`,
    );
  }
  const { limits, ...options } = policy;
  return new Policy(limits, options);
}

function urlsIn(store: string | readonly string[]): string[] {
  const all: readonly unknown[] = Array.isArray(store) ? store : [store];
  const urls = all.filter((url) => typeof url === 'string');
  if (urls.length !== all.length) throw new ConfigError('a store is named by its URL, a string');
  for (const url of urls) checkText(url, 'a store URL');
  return urls;
}
