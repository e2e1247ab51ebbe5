import { ManualClock, nativeClockOf } from './clock.js';
import { ConfigError, checkText, describe, PolicyError, shortened } from './errors.js';
import { checkOptions, checkType, declaredNames, declaredOptions, isRecord } from './given-options.js';
import { type binding, native, throwIfFailed } from './native.js';
import { type Limit, nativePolicyOf, type OnStoreError, Policy, type PolicyOptions } from './policy.js';
import { Rollout, urlsOf } from './rollout.js';
import type { Logger, NearLimit, StoreChange } from './store-changes.js';

/** The options of a limiter. */
export interface LimiterOptions<Name extends string = string> {
  // options: limiter
  /**
   * Where usage is stored, as a URL: `memory://`, `file:///path`, `redis://`, `rediss://`, `redis+unix://`,
   * `valkey://`, and others; a list of servers, sharded by key; or a `rollout` from one to another. Default:
   * `memory://`.
   */
  store?: string | readonly string[] | Rollout | undefined;
  /**
   * Policies by name: a notation, a Policy, or limits with options as in a policy file. They stay when a policy file is
   * reloaded.
   */
  policies?: Readonly<Record<Name, string | Policy | PolicyDescription>> | undefined;
  /** What every key in Redis begins with. Default: `tg`. */
  prefix?: string | undefined;
  /**
   * A secret of at least 16 bytes for the digests in the names of Redis keys, so that a copy of the data does not tell
   * whether a key that was guessed, such as an address, was used. All limiters that share limits need the same one.
   */
  keySecret?: string | Uint8Array | undefined;
  /** The longest time that a call may wait for the store. Default: 250 ms. */
  timeoutMs?: number | undefined;
  /** What a check answers when the store fails: `raise`, `open`, `closed` or `local`. Default: `local`. */
  onStoreError?: OnStoreError | undefined;
  /** The longest time that a denial is repeated without asking the store; 0 turns it off. Default: 1,000 ms. */
  denyCacheMs?: number | undefined;
  /** The most callers that wait, in `acquire` or for a hold. Beyond it a call is denied at once. Default: 10,000. */
  maxWaiting?: number | undefined;
  /** The most callers that wait for one policy and key. Default: 1,000. */
  maxWaitingPerKey?: number | undefined;
  /** Called once when a store is lost or refuses, and once when it is back. */
  onChange?: ((change: StoreChange) => void) | undefined;
  /**
   * Called when a key comes near a limit, before it is reached: at most once for each policy, key and window in a
   * process.
   */
  onNearLimit?: ((near: NearLimit) => void) | undefined;
  /** The part of a limit from which on it is near, for `onNearLimit`. Default: 0.8. */
  nearLimit?: number | undefined;
  /** How often the policy file is read to find a change, which is then reloaded; 0 never looks. Default: 0 ms. */
  watchMs?: number | undefined;
  /** A clock for tests, whose time is used instead of the store's. */
  clock?: ManualClock | undefined;
  /**
   * Takes one line when a store is lost, refuses, or is back, and one for each warning about a policy file that is
   * loaded; `console` is a logger. False turns it off. Default: warnings of the process.
   */
  logger?: Logger | false | undefined;
  /**
   * Whether a refusal is logged, as a warning: its policy, its key, the limit that refused, the wait, and what
   * answered. At most ten lines a second; the next line says how many refusals have none. Default: false.
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
  if (typeof secret !== 'string') throw new ConfigError('keySecret is no secret: it must be a text or a Uint8Array');
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
  else if (store !== undefined) throwIfFailed(builder.store(urlsIn(store)));
  if (policies !== undefined && !isRecord(policies)) {
    throw new ConfigError(`policies cannot be ${describe(policies)}: give an object with policies by name`);
  }
  for (const [name, policy] of Object.entries(policies ?? {})) {
    checkText(name, 'the name of a policy', PolicyError);
    throwIfFailed(builder.policy(name, nativePolicyOf(policyNamed(name, policy))));
  }
  for (const [name, value] of settings) {
    if (value !== undefined) throwIfFailed(builder.set(name, value));
  }
  if (clock !== undefined) {
    if (!(clock instanceof ManualClock))
      throw new ConfigError(`clock cannot be ${describe(clock)}: give a ManualClock`);
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
    `${is} cannot be ${describe(policy)}: give a notation, a Policy, or an object with limits and options`,
  );
}

function urlsIn(store: string | readonly string[]): string[] {
  const all: readonly unknown[] = Array.isArray(store) ? store : [store];
  return all.map((url) => {
    if (typeof url === 'string') return checkText(url, 'a store URL');
    throw new ConfigError(`store cannot be ${describe(url)}: give a URL, a list of URLs, or a rollout`);
  });
}
