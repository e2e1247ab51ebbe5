// The fields of a Decision, in the words that the vectors and all languages share. Times are in whole microseconds.

/** Node's milliseconds as whole microseconds. */
export const micros = (ms) => (ms === null ? null : Math.round(ms * 1000));

/** Every field of a Decision. */
export function fieldsOf(decision) {
  return {
    allowed: decision.allowed,
    shadow: decision.shadow,
    abnormal: decision.abnormal,
    overridden: decision.overridden,
    learned: decision.learned,
    policy: decision.policy,
    key: decision.key,
    cost: decision.cost,
    granted: decision.granted,
    limit: decision.limit,
    remaining: decision.remaining,
    retry_after: micros(decision.retryAfterMs),
    next_after: micros(decision.nextAfterMs),
    reset_after: micros(decision.resetAfterMs),
    // In milliseconds, because a Date has no microseconds.
    reset_at: decision.resetAt.getTime(),
    delay: micros(decision.delayMs),
    source: decision.source,
    unavailable: decision.unavailable,
    limits: decision.limits.map((limit) => ({
      algorithm: limit.algorithm,
      unit: limit.unit,
      cost: limit.cost,
      limit: limit.limit,
      period: micros(limit.periodMs),
      remaining: limit.remaining,
      over: limit.over,
      retry_after: micros(limit.retryAfterMs),
      next_after: micros(limit.nextAfterMs),
      reset_after: micros(limit.resetAfterMs),
      exceeded: limit.exceeded,
    })),
    decisions: decision.decisions.map(fieldsOf),
  };
}
