import type { DenyCache } from './deny-cache.js';
import { checkText, describe, PolicyError } from './errors.js';
import { unwrap } from './native.js';
import { nativePolicyOf, Policy, type PolicyLike, type PolicyRef } from './policy.js';
import type { Transport } from './transport.js';

/** The most policies that are kept. A program that makes more of them begins with an empty list again. */
const MAX_POLICIES = 10_000;

/** The policies that a limiter has resolved, so that each crosses only once. */
export class PolicyRefs {
  readonly #transport: Transport;
  readonly #denyCache: DenyCache | undefined;
  readonly #resolved = new Map<PolicyLike, PolicyRef>();

  constructor(transport: Transport, denyCache: DenyCache | undefined) {
    this.#transport = transport;
    this.#denyCache = denyCache;
  }

  /** The policy as calls name it. */
  of(policy: PolicyLike): PolicyRef {
    return this.#resolved.get(policy) ?? this.#resolve(policy);
  }

  #resolve(policy: PolicyLike): PolicyRef {
    if (typeof policy !== 'string' && !(policy instanceof Policy)) {
      throw new PolicyError(`a policy cannot be ${describe(policy)}: give a name, a notation or a Policy`);
    }
    if (typeof policy === 'string') checkText(policy, 'a policy', PolicyError);
    if (this.#resolved.size >= MAX_POLICIES) this.forget();
    const { nativeLimiter } = this.#transport;
    const resolved = unwrap(nativeLimiter.resolve(typeof policy === 'string' ? policy : nativePolicyOf(policy)));
    const policyRef: PolicyRef = { ...resolved, given: policy };
    this.#resolved.set(policy, policyRef);
    return policyRef;
  }

  /** Forgets all policies, because they may be different from now on. */
  forget(): void {
    // Queued calls name policies by the old list.
    this.#transport.flush();
    this.#resolved.clear();
    this.#transport.nativeLimiter.forgetPolicies();
    this.#denyCache?.forgetAll();
  }
}
