import type { PolicyRef } from './decision.js';
import type { DenyCache } from './deny-cache.js';
import { PolicyError, shown } from './errors.js';
import { unwrap } from './native.js';
import { Policy, type PolicyLike, policyOf } from './policy.js';
import type { Transport } from './transport.js';

/** Policies a limiter knows by number; a program that makes up more of them begins anew. */
const MOST = 10_000;

/** What a limiter knows of the policies it was asked about. */
export class PolicyRefs {
  readonly #transport: Transport;
  readonly #denyCache: DenyCache | undefined;
  readonly #known = new Map<PolicyLike, PolicyRef>();

  constructor(transport: Transport, denied: DenyCache | undefined) {
    this.#transport = transport;
    this.#denyCache = denied;
  }

  /** What calls about a policy need to know of it. */
  of(policy: PolicyLike): PolicyRef {
    return this.#known.get(policy) ?? this.#resolve(policy);
  }

  #resolve(policy: PolicyLike): PolicyRef {
    if (typeof policy !== 'string' && !(policy instanceof Policy)) {
      throw new PolicyError(`a policy cannot be ${shown(policy)}: give a name, a notation or a Policy`);
    }
    if (this.#known.size >= MOST) this.forget();
    const resolved = unwrap(this.#transport.channel.resolve(typeof policy === 'string' ? policy : policyOf(policy)));
    const policyRef: PolicyRef = { ...resolved, given: policy };
    this.#known.set(policy, policyRef);
    return policyRef;
  }

  /** Policies may be others from now on. */
  forget(): void {
    // What is still to be sent refers to them by number.
    this.#transport.flush();
    this.#known.clear();
    this.#transport.channel.forget();
    this.#denyCache?.forgetAll();
  }
}
