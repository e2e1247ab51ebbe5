import { copied } from './deny-cache.js';
import { checkText, describe, PolicyError } from './errors.js';
import { type binding, unwrap } from './native.js';
import { nativePolicyOf, Policy, type PolicyLike, type PolicyRef, policyFrom } from './policy.js';
import type { Transport } from './transport.js';

/** The most policies to keep, and the most bytes. Beyond them the list starts again, empty. */
const MAX_POLICIES = 10_000;
const MAX_BYTES = 16 * 2 ** 20;
/** The longest notation to keep, in characters. Each call reads a longer one, and finds its policy by the canonical form. */
const MAX_NOTATION_LENGTH = 512;

/** The policies that a limiter has resolved, so that each crosses only once. */
export class PolicyRefs {
  readonly #transport: Transport;
  /** The store and the prefix of the limiter. */
  readonly identity: string;
  readonly #resolved = new Map<PolicyLike, PolicyRef>();
  /** The policy found last. A comparison is faster than a look-up, and most calls name the same policy. */
  #lastFound: PolicyLike | undefined;
  #lastRef: PolicyRef | undefined;
  /** The policies of long notations, by their canonical notations. */
  readonly #ofLongNotations = new Map<string, PolicyRef>();
  #bytes = 0;
  /** Counts the starts of a new list. */
  #generation = 0;
  /** Counts the reloads of the policy file. */
  reloads = 0;
  /** The policies in use by an object. They stay in use for as long as the object lives. */
  readonly #uses = new WeakMap<object, binding.PolicyUse[]>();

  constructor(transport: Transport) {
    this.#transport = transport;
    this.identity = transport.nativeLimiter.identity();
  }

  /** Returns the policy that a call names. */
  of(policy: PolicyLike): PolicyRef {
    if (policy === this.#lastFound && this.#lastRef !== undefined) return this.#lastRef;
    const found = this.#resolved.get(policy);
    if (found === undefined) return this.#resolve(policy);
    this.#lastFound = policy;
    this.#lastRef = found;
    return found;
  }

  /** Registers that `user` uses a policy. While it lives, `reload` refuses to drop the policy. Errors call the user `by`. */
  use(policy: PolicyLike, by: string, user: object): void {
    // This throws if the argument is no policy.
    this.of(policy);
    const crossing = typeof policy === 'string' ? policy : nativePolicyOf(policy);
    const policyUse = unwrap(this.#transport.nativeLimiter.usePolicy(crossing, by));
    const uses = this.#uses.get(user);
    if (uses === undefined) this.#uses.set(user, [policyUse]);
    else uses.push(policyUse);
  }

  /** Returns the result of `make`. It calls `make` again if the list started anew meanwhile, so that all policies are in one list. */
  together<T>(make: () => T): T {
    const generation = this.#generation;
    const made = make();
    return generation === this.#generation ? made : make();
  }

  #resolve(policy: PolicyLike): PolicyRef {
    if (typeof policy === 'string') {
      checkText(policy, 'a policy', PolicyError);
      if (policy.length > MAX_NOTATION_LENGTH) return this.#resolveLong(policy);
      const text = copied(policy);
      return this.#add(this.#resolved, text, text, text);
    }
    if (!(policy instanceof Policy)) {
      throw new PolicyError(`a policy must be a name, a notation or a Policy, not ${describe(policy)}`);
    }
    return this.#add(this.#resolved, policy, policy, nativePolicyOf(policy));
  }

  #resolveLong(notation: string): PolicyRef {
    const policy = policyFrom(unwrap(this.#transport.nativeLimiter.parse(notation)));
    const known = this.#ofLongNotations.get(policy.name);
    return known ?? this.#add(this.#ofLongNotations, policy.name, policy, nativePolicyOf(policy));
  }

  #add<K>(list: Map<K, PolicyRef>, key: K, given: PolicyLike, crossing: string | binding.Policy): PolicyRef {
    if (this.#resolved.size + this.#ofLongNotations.size >= MAX_POLICIES || this.#bytes > MAX_BYTES) this.forget();
    const { bytes, ...resolved } = unwrap(this.#transport.nativeLimiter.resolve(crossing));
    const { nativeLimiter } = this.#transport;
    const announcementFor = (key: string): binding.Announcement | undefined =>
      nativeLimiter.announcementFor(resolved.id, key) ?? undefined;
    const unitsFor = (key: string): readonly string[] | undefined =>
      nativeLimiter.unitsFor(resolved.id, key) ?? undefined;
    const policyRef: PolicyRef = { ...resolved, announcementFor, unitsFor, given, limiter: this.identity, repeated: 0 };
    list.set(key, policyRef);
    this.#bytes += bytes;
    return policyRef;
  }

  /** Forgets all policies, because they may be different from now on. */
  forget(): void {
    // Queued calls name policies by the old list, and so do denials that are to be counted.
    this.#transport.flush();
    this.#transport.countRepeated();
    this.#lastFound = undefined;
    this.#lastRef = undefined;
    this.#resolved.clear();
    this.#ofLongNotations.clear();
    this.#bytes = 0;
    this.#generation++;
    this.#transport.nativeLimiter.forgetPolicies();
  }
}
