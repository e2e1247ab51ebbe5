import { ManualClock, nativeClockOf } from './clock.js';
import { ConfigError, checkText, describe, PolicyError, shortened } from './errors.js';
import { checkOptions, checkType, declaredNames, declaredOptions, isRecord } from './given-options.js';
import { type binding, native, throwIfFailed } from './native.js';
import { type Limit, nativePolicyOf, type OnStoreError, Policy, type PolicyOptions } from './policy.js';
import { Rollout, urlsOf } from './rollout.js';
import type { Logger, StoreChange } from './store-changes.js';
import { isStore, type KeyValueStore, ownStoreOf } from './stores.js';

/** The options of a limiter. */
export interface LimiterOptions<Name extends string = string> {
  // options: limiter
  /**
   * The URL of the store: `memory://`, `file:///path`, `redis://`, `rediss://`, `redis+unix://`, `valkey://` or
   * another. You can also give a list of servers that share the keys, or a `rollout` from one store to another.
   * Default: `memory://`.
   */
  store?: string | readonly string[] | Rollout | KeyValueStore | undefined;
  /**
   * The policies by name: a notation, a Policy, or limits with options as in a policy file. A reload of the file keeps
   * them.
   */
  policies?: Readonly<Record<Name, string | Policy | PolicyDescription>> | undefined;
  /** The beginning of every key in Redis. Give each application another one. Default: `tg`. */
  prefix?: string | undefined;
  /**
   * A secret of at least 16 bytes for the names of Redis keys. With it, no one can find out from a copy of the data if
   * a guessed key, such as an address, was used. All limiters that share limits need the same secret.
   */
  keySecret?: string | Uint8Array | undefined;
  /** The longest time that a call may wait for the store. Default: 250 ms. */
  timeoutMs?: number | undefined;
  /** The answer to a check when the store fails: `raise`, `open`, `closed` or `local`. Default: `local`. */
  onStoreError?: OnStoreError | undefined;
  /**
   * The longest time for which a denial is repeated without a call to the store. 0 turns this off. Default: 1,000 ms.
   */
  denyCacheMs?: number | undefined;
  /** The most callers that may wait in `acquire` or for a hold. A further call is denied at once. Default: 10,000. */
  maxWaiting?: number | undefined;
  /** The most callers that may wait for one policy and key. Default: 1,000. */
  maxWaitingPerKey?: number | undefined;
  /**
   * A function that Tidegate calls once when a store is lost or refuses calls, and once when it is back. The logger
   * "tidegate" gets its exceptions.
   */
  onChange?: ((change: StoreChange) => void) | undefined;
  /** A clock for tests. Its time replaces the time of the store. */
  clock?: ManualClock | undefined;
  /**
   * The logger, such as `console`. It gets a line when a store is lost, refuses calls or is back, and a line for each
   * warning about a policy file. False turns it off. Default: warnings of the process.
   */
  logger?: Logger | false | undefined;
  /**
   * Log each refusal as a warning with the policy, the key, the limit that refused, the wait and the source of the
   * answer. There are at most ten lines a second, and the next line counts the refusals in between. Default: false.
   */
  logRefusals?: boolean | undefined;
  // options end
}

/** A policy as a policy file describes it. */
export interface PolicyDescription extends Omit<PolicyOptions, 'name'> {
  /** A notation, a Limit, or several of both. */
  limits: string | Limit | readonly (string | Limit)[];
}

/** Checks and returns the value of an option that the core takes as it is. Undefined for any other option. */
function settingOf(
  { name, kind, types }: binding.DeclaredOption,
  value: unknown,
): string | number | boolean | Uint8Array | undefined {
  if (value === undefined || (types.length === 0 && kind !== 'Secret')) return undefined;
  if (kind === 'Secret') return bytesOf(value);
  checkType(name, value, types);
  return value as string | number | boolean;
}

/** No error message shows the secret. */
function bytesOf(secret: unknown): Uint8Array {
  if (secret instanceof Uint8Array) return secret;
  if (typeof secret !== 'string')
    throw new ConfigError('keySecret must be a text or a Uint8Array of at least 16 bytes');
  return new TextEncoder().encode(checkText(secret, 'keySecret'));
}

/** Returns the native builder of a limiter, from its options and from a policy file if there is one. */
export function builderOf(given: LimiterOptions, file: string | undefined): binding.LimiterBuilder {
  const options = checkOptions(given, declaredNames('limiter'), 'a limiter', "store: 'redis://…'");
  const settings = declaredOptions('limiter').map(
    (option) => [option.name, settingOf(option, options[option.name as keyof LimiterOptions])] as const,
  );
  const { store, policies, clock } = options;
  const builder = native.LimiterBuilder.create();
  if (file !== undefined) throwIfFailed(builder.file(checkText(file, 'the path of a policy file', PolicyError)));
  if (store instanceof Rollout) throwIfFailed(builder.rollout(...urlsOf(store), store.percent));
  else if (isStore(store)) builder.ownStore(ownStoreOf(store));
  else if (store !== undefined) throwIfFailed(builder.store(urlsIn(store)));
  if (policies !== undefined && !isRecord(policies)) {
    throw new ConfigError(`policies must be an object with policies by name, not ${describe(policies)}`);
  }
  for (const [name, policy] of Object.entries(policies ?? {})) {
    checkText(name, 'the name of a policy', PolicyError);
    throwIfFailed(builder.policy(name, nativePolicyOf(policyNamed(name, policy))));
  }
  for (const [name, value] of settings) {
    if (value !== undefined) throwIfFailed(builder.set(name, value));
  }
  if (clock !== undefined) {
    if (!(clock instanceof ManualClock)) throw new ConfigError(`clock must be a ManualClock, not ${describe(clock)}`);
    builder.clock(nativeClockOf(clock));
  }
  return builder;
}

/** Returns the policy that was given under a name. An error names it, because there may be many. */
export function policyNamed(name: string, policy: string | Policy | PolicyDescription): Policy {
  if (policy instanceof Policy) return policy;
  const is = `the policy ${shortened(name)}`;
  try {
    if (typeof policy === 'string') return new Policy(policy);
    if (typeof policy === 'object' && policy !== null && 'limits' in policy) {
      const { limits, ...options } = policy;
      return new Policy(limits, options);
    }
  } catch (error) {
    throw error instanceof PolicyError ? new PolicyError(`${is}: ${error.message}`, error.code, error.place) : error;
  }
  throw new PolicyError(
    `${is} must be a notation, a Policy, or an object with limits and options, not ${describe(policy)}`,
  );
}

function urlsIn(store: string | readonly string[]): string[] {
  const all: readonly unknown[] = Array.isArray(store) ? store : [store];
  return all.map((url) => {
    if (typeof url === 'string') return checkText(url, 'a store URL');
    throw new ConfigError(
      `store must be a URL, a list of URLs, a rollout, or a KeyValueStore of tidegate/stores, not ${describe(url)}`,
    );
  });
}
