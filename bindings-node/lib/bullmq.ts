// Limits for the jobs of BullMQ.
//
//     import { limited } from 'tidegate/bullmq';
//
//     const send = limited({ limiter, policy: '20/s', key: (job) => job.data.user }, async (job) => { … });
//     new Worker('mail', send, { connection });

import { DelayedError, type Job, type Processor } from 'bullmq';
import type { Cost } from './cost.js';
import type { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions } from './given-options.js';
import type { Hold } from './hold.js';
import { JobLength } from './job-length.js';
import { checkCostIn, checkTarget, type Limiter, policyRefIn, usePolicyIn } from './limiter.js';
import type { PolicyLike, PolicyRef } from './policy.js';
import { refuseQueues } from './queueing-policies.js';
import { RateLimited } from './rate-limited.js';
import { asked, unwrapped } from './tracing.js';
import { jobWaitIn } from './turns.js';
import { checkMade, madeCost, madeKey, madePriority } from './wrap.js';

/** The options of `limited`. */
export interface LimitedOptions<J> {
  /** The limiter to ask. */
  limiter: Limiter;
  /** A name, a notation, a Policy, or a function of the job that returns one of these, or undefined for no limit. */
  policy: PolicyLike | ((job: J) => PolicyLike | undefined);
  /** The key, or a function of the job. By default the name of the queue. Processors with the same policy and key share one limit. */
  key?: string | ((job: J) => string) | undefined;
  /** Units each job consumes, or a function of the job. Default 1. */
  cost?: Cost | ((job: J) => Cost) | undefined;
  /** The class of the jobs, one of the policy's `priorities`, or a function of the job. */
  priority?: string | ((job: J) => string | undefined) | undefined;
  /** The prefix of each key. Default: `job:`. */
  prefix?: string | undefined;
  /** Called with the Decision, the wait and the job when a job goes back to the queue. */
  onWait?: ((decision: Decision, waitMs: number, job: J) => void) | undefined;
}

const OPTIONS = ['limiter', 'policy', 'key', 'cost', 'priority', 'prefix', 'onWait'];
const WHERE = 'tidegate/bullmq';

/**
 * Returns the processor with a limit: it asks the limiter before each job runs. A denied job goes back as a delayed job, which counts
 * no attempt and keeps no worker waiting. The units of a `concurrency` limit are held while the processor runs. They come back when it
 * ends or fails, or within their ttl if the process is killed. A job that can never be admitted fails with RateLimited.
 */
// biome-ignore lint/suspicious/noExplicitAny: the defaults of BullMQ's own types, so that untyped workers stay untyped
export function limited<T = any, R = any, N extends string = string>(
  options: LimitedOptions<Job<T, R, N>>,
  processor: Processor<T, R, N>,
): Processor<T, R, N> {
  const { limiter, policy, key, cost = 1, priority, prefix = 'job:', onWait } = checkOptions(options, OPTIONS, WHERE);
  checkTarget({ limiter, prefix }, WHERE);
  if (typeof processor !== 'function') {
    throw new ConfigError(`${WHERE}: a processor must be a function of a job, not ${describe(processor)}`);
  }
  if (onWait !== undefined && typeof onWait !== 'function') {
    throw new ConfigError(`${WHERE}: the option onWait must be a function, not ${describe(onWait)}`);
  }
  checkMade(key ?? '', cost, priority);
  const target = unwrapped(limiter);
  const checked = new WeakSet<PolicyRef>();
  const length = new JobLength();

  const check = (ref: PolicyRef): void => {
    if (checked.has(ref)) return;
    refuseQueues(target.policy(ref.given), ref.name, 'jobs wait in their own queue');
    checked.add(ref);
  };

  /** Moves a refused job to the delayed jobs, and throws the error that informs the worker. */
  const putBack = async (job: Job<T, R, N>, token: string | undefined, decision: Decision): Promise<never> => {
    if (decision.retryAfterMs === null && !decision.unavailable) throw new RateLimited(decision);
    // `attemptsStarted` counts each time a worker takes a job, `attemptsMade` only the runs that ended or failed.
    const cameBack = job.attemptsStarted > job.attemptsMade + 1;
    const waitMs = Math.ceil(await jobWaitIn(target, decision, cameBack, length.meanMs));
    // This runs before the job goes back. If it throws, the job fails and must not run again later.
    onWait?.(decision, waitMs, job);
    await job.moveToDelayed(Date.now() + waitMs, token);
    throw new DelayedError();
  };

  const run: Processor<T, R, N> = async (job, token, ...rest) => {
    const given = typeof policy === 'function' ? policy(job) : policy;
    if (given === undefined) return processor(job, token, ...rest);
    const ref = policyRefIn(target, given);
    check(ref);
    const name = processor.name || 'the processor';
    const made = typeof key === 'function' ? madeKey(name, key(job)) : (key ?? job.queueName);
    const units = typeof cost === 'function' ? madeCost(name, cost(job)) : cost;
    const of = typeof priority === 'function' ? madePriority(name, priority(job)) : priority;
    const call = of === undefined ? { cost: units } : { cost: units, priority: of };
    if (!ref.holds) {
      const decision = await asked(target).check(given, prefix + made, call);
      return decision.allowed ? processor(job, token, ...rest) : putBack(job, token, decision);
    }
    let hold: Hold;
    try {
      hold = await asked(target).hold(given, prefix + made, call);
    } catch (error) {
      if (error instanceof RateLimited) return putBack(job, token, error.decision);
      throw error;
    }
    const began = performance.now();
    try {
      return await processor(job, token, ...rest);
    } finally {
      length.add(performance.now() - began);
      await hold.release();
    }
  };
  if (typeof policy !== 'function') {
    const ref = policyRefIn(target, policy);
    check(ref);
    if (typeof cost !== 'function') checkCostIn(target, ref, cost);
    usePolicyIn(target, policy, `limited of ${processor.name || 'a processor'}`, run);
  }
  return run;
}
