export { ManualClock } from './clock.js';
export { Decision, type DecisionFields, type LimitState, type Source } from './decision.js';
export {
  ClosedError,
  ConfigError,
  CostError,
  type ErrorCode,
  KeyInvalid,
  type Place,
  PolicyError,
  StoreError,
  TidegateError,
} from './errors.js';
export { Hold } from './hold.js';
export {
  type AcquireOptions,
  type Attempt,
  type CheckEntry,
  type CheckOptions,
  type CostOptions,
  type HoldOptions,
  Limiter,
  type LimiterOptions,
  type WrapOptions,
} from './limiter.js';
export { type LintWarning, lint } from './lint.js';
export {
  type Algorithm,
  type Duration,
  Limit,
  type LimitOptions,
  type OnStoreError,
  Policy,
  type PolicyLike,
  type PolicyOptions,
} from './policy.js';
export { RateLimited } from './rate-limited.js';
