export type { Attempt } from './attempt.js';
export type {
  AcquireOptions,
  CheckEntry,
  CheckOptions,
  CostOptions,
  HoldOptions,
  NamedCheckEntry,
  PeekOptions,
} from './call-options.js';
export type { CancelSignal } from './cancel-signal.js';
export { ManualClock } from './clock.js';
export { Decision, type DecisionFields, type LimitState, type Source } from './decision.js';
export type { ErrorCode, SourceLocation, SourceLocation as Place } from './errors.js';
export { ClosedError, ConfigError, CostError, KeyInvalid, PolicyError, StoreError, TidegateError } from './errors.js';
export { Hold } from './hold.js';
export { Limiter } from './limiter.js';
export type { LimiterOptions, PolicyDescription } from './limiter-options.js';
export { type LintSource, lint } from './lint.js';
export type { OverriddenKey } from './overridden-key.js';
export {
  type Algorithm,
  type Duration,
  Limit,
  type LimitOptions,
  type LintWarning,
  type Notation,
  type OnStoreError,
  Policy,
  type PolicyLike,
  type PolicyOptions,
} from './policy.js';
export { RateLimited } from './rate-limited.js';
export { type Rollout, rollout } from './rollout.js';
export type { ActualCost } from './settled.js';
export type { Counters, Histogram, PolicyStats, Stats } from './stats.js';
export type { Logger, NearLimit, StoreChange } from './store-changes.js';
export type { WrapOptions } from './wrap.js';
