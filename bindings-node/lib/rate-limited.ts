import type { Decision } from './decision.js';
import { shortened, TidegateError } from './errors.js';

/**
 * A denial as an error. A function made by `wrap` throws it, and so does `hold` if there is no room.
 * @group Errors
 */
export class RateLimited extends TidegateError {
  /** The denial. */
  readonly decision: Decision;

  constructor(decision: Decision) {
    const wait = decision.retryAfterMs;
    const when = wait === null ? 'this is never admitted' : `try again in ${Math.ceil(wait)} ms`;
    super(`${shortened(decision.policy)} denies this key: ${when}`, 'rate_limited');
    this.decision = decision;
  }

  static {
    RateLimited.prototype.name = 'RateLimited';
  }
}
