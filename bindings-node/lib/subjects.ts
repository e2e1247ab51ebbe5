import type { Subject } from './decision.js';
import type { Denied } from './denied.js';
import { PolicyError, shown } from './errors.js';
import { unwrap } from './native.js';
import type { Pipe } from './pipe.js';
import { Policy, type PolicyLike, policyOf } from './policy.js';

/** Policies a limiter knows by number; a program that makes up more of them begins anew. */
const MOST = 10_000;

/** What a limiter knows of the policies it was asked about. */
export class Subjects {
  readonly #pipe: Pipe;
  readonly #denied: Denied | undefined;
  readonly #known = new Map<PolicyLike, Subject>();

  constructor(pipe: Pipe, denied: Denied | undefined) {
    this.#pipe = pipe;
    this.#denied = denied;
  }

  /** What calls about a policy need to know of it. */
  of(policy: PolicyLike): Subject {
    return this.#known.get(policy) ?? this.#resolve(policy);
  }

  #resolve(policy: PolicyLike): Subject {
    if (typeof policy !== 'string' && !(policy instanceof Policy)) {
      throw new PolicyError(`a policy cannot be ${shown(policy)}: give a name, a notation or a Policy`);
    }
    if (this.#known.size >= MOST) this.forget();
    const resolved = unwrap(this.#pipe.channel.resolve(typeof policy === 'string' ? policy : policyOf(policy)));
    const subject: Subject = { ...resolved, given: policy };
    this.#known.set(policy, subject);
    return subject;
  }

  /** Policies may be others from now on. */
  forget(): void {
    // What is still to be sent refers to them by number.
    this.#pipe.flush();
    this.#known.clear();
    this.#pipe.channel.forget();
    this.#denied?.forgetAll();
  }
}
