// Turns of calls that go out, and waits of jobs. The core decides.

import { DecisionField } from '../binding/index.js';
import type { CancelSignal } from './cancel-signal.js';
import type { Cost } from './cost.js';
import { type Decision, numbersOf, policyRefOf } from './decision.js';
import type { Hold } from './hold.js';
import { type Limiter, partsIn } from './limiter.js';
import { learnedPolicy, type Policy, type PolicyRef } from './policy.js';
import { type Observation, observationsOf } from './response-reading.js';
import type { AdmissionAnswer, CallTarget } from './tasks.js';

/** A call that goes out, as its limits are asked. */
export interface OutgoingCall {
  /** Its policy, with the margin of outgoing calls. */
  readonly policy: Policy;
  readonly key: string;
  /** The key for waits that the service imposes on all its callers, if it differs from `key`. */
  readonly origin: string | undefined;
  readonly cost: Cost;
  readonly priority: string | undefined;
}

/** The turn of a call that goes out, or its denial. */
export interface TurnAnswer extends Omit<AdmissionAnswer, 'holds' | 'steps'> {
  readonly hold: Hold | undefined;
}

/** Returns the target of a call, and its service if that has another key. */
function targetsOf(limiter: Limiter, call: OutgoingCall): [CallTarget, ...CallTarget[]] {
  const { policy, key, cost, priority, origin } = call;
  const { policyRefs, target } = partsIn(limiter);
  return policyRefs.together(() => {
    const own = target(policy, key, cost, undefined, priority);
    return origin === undefined ? [own] : [own, target(learnedPolicy(), origin)];
  });
}

/** Returns the Decision of `acquire` if memory answers at once. One that is not allowed means that the call may have to wait. */
export function acquireIn(
  limiter: Limiter,
  policyRef: PolicyRef,
  key: string,
  cost: number,
): Decision | Promise<Decision> | undefined {
  return partsIn(limiter).transport.acquireAtOnce({ policyRef, key, cost });
}

/** Waits for the turn of a call: see `Tasks.turn`. */
export async function turnIn(
  limiter: Limiter,
  call: OutgoingCall,
  timeoutMs: number,
  announces: boolean,
  signal: CancelSignal | undefined,
): Promise<TurnAnswer> {
  const { transport, holds } = partsIn(limiter);
  const targets = targetsOf(limiter, call);
  const [target] = targets;
  if (targets.length === 1 && !announces && !target.policyRef.holds && !signal?.aborted) {
    const decision = await transport.acquireAtOnce(target);
    if (decision?.allowed) return { decision, refusedBy: undefined, waits: false, hold: undefined };
  }
  const answer = await transport.tasks.turn(targets, timeoutMs, announces, signal);
  const [hold] = answer.holds.map(([, number]) => holds.of(number, answer.decision));
  return { ...answer, hold };
}

/** True if another call may have learned since that Decision that the service refuses such calls. `isRefusedSince` asks. */
export function mayBeRefusedSince(limiter: Limiter, { key, origin }: OutgoingCall, decision: Decision): boolean {
  const { nativeLimiter } = partsIn(limiter).transport;
  const at = numbersOf(decision)[DecisionField.At];
  return (
    nativeLimiter.mayBeRefusedSince(key, at) || (origin !== undefined && nativeLimiter.mayBeRefusedSince(origin, at))
  );
}

/** True if the service refuses such calls since that Decision. */
export function isRefusedSince(limiter: Limiter, call: OutgoingCall, decision: Decision): Promise<boolean> {
  const at = numbersOf(decision)[DecisionField.At];
  return partsIn(limiter).transport.tasks.isRefusedSince(targetsOf(limiter, call), at);
}

/** Learns the limits in the response to a call. */
export function learnIn(
  limiter: Limiter,
  call: OutgoingCall,
  said: readonly Observation[],
  decision: Decision,
): Promise<void> {
  const numbers = [...numbersOf(decision)];
  return partsIn(limiter).transport.tasks.learn(targetsOf(limiter, call), observationsOf(said), numbers);
}

/** Returns the time until a refused job asks again. `usualLengthMs` is the typical run time of jobs, if any has ended. */
export function jobWaitIn(
  limiter: Limiter,
  denial: Decision,
  cameBack: boolean,
  usualLengthMs: number | undefined,
): Promise<number> {
  const { transport, policyRefs } = partsIn(limiter);
  const { id } = policyRefs.of(policyRefOf(denial).given);
  return transport.tasks.jobWait(id, denial, cameBack, usualLengthMs);
}
