// Computes when a refused job asks again.

import type { Decision, LimitState } from './decision.js';
import { kept } from './kept.js';
import type { Limiter } from './limiter.js';
import { Limit, Policy } from './policy.js';

/** A line has room for the jobs that a limit admits in this time, or in 50 of its periods if they are longer. */
const LINE_MS = 7 * 86_400_000;
const MOST = 1e12;
/** How long to wait for a store that is missing. */
const STORE_MISSING_MS = 1_000;
/** The most policies of lines that are kept. */
const MAX_LINES = 256;

/** The typical run time of jobs in this process. The length of holds in other processes is not known. */
export class JobLength {
  #meanMs: number | undefined;

  add(ms: number): void {
    this.#meanMs = this.#meanMs === undefined ? ms : 0.8 * this.#meanMs + 0.2 * ms;
  }

  /** A power of two in seconds, so that processes agree on the policy of a line. Before any job has ended: 250 ms. */
  get periodMs(): number {
    const mean = this.#meanMs === undefined ? 250 : Math.min(Math.max(this.#meanMs, 10), 86_400_000);
    return 1_000 * 2 ** Math.floor(Math.log2(mean / 1_000));
  }
}

/**
 * The milliseconds until a refused job asks again.
 *
 * A single job waits exactly as long as its Decision asks. If many jobs wait for a key, each gets a different moment: they stand
 * in a line, a leaky-bucket in the store with the rate of the limit that refused. Jobs that are refused again at their moment
 * stand in a separate line, so that they are not behind all others.
 */
export async function waitOf(
  limiter: Limiter,
  decision: Decision,
  policy: Policy,
  cameBack: boolean,
  length: JobLength,
): Promise<number> {
  if (decision.unavailable) return Math.max(decision.retryAfterMs ?? 0, STORE_MISSING_MS * (1 + Math.random()));
  const place = refusing(decision.limits);
  const state = decision.limits[place] as LimitState;
  const limit = decision.overridden ? undefined : policy.limits[place];
  const count = limit?.count ?? state.limit;
  const held = state.algorithm === 'concurrency';
  let periodMs = held ? length.periodMs : state.periodMs;
  // Units leave the window one granule after the period.
  if (state.algorithm === 'sliding-window') periodMs += periodMs / (limit?.precision ?? 20);
  const key = `line:${decision.policy}:${cameBack ? 1 : 0}:${decision.key}`;
  const line = await limiter.check(lineOf(count, periodMs), key, { cost: state.cost });
  const delayMs = line.allowed ? line.delayMs : line.resetAfterMs;
  if (held) return Math.max(delayMs + (state.cost * periodMs) / count, blockedMs(decision));
  // The used units come back between retryAfterMs and resetAfterMs. They admit the first batch, then the next follows.
  const batchMs = (state.limit * periodMs) / count;
  const within = delayMs % batchMs;
  const retryMs = state.retryAfterMs ?? 0;
  const spreadMs = Math.max(0, state.resetAfterMs - retryMs);
  return Math.max(retryMs, blockedMs(decision)) + delayMs - within + (spreadMs * within) / batchMs;
}

/** Returns the place of the limit that refuses longest. Concurrency comes last, because its wait is not known. */
function refusing(states: readonly LimitState[]): number {
  const order = (state: LimitState): number[] => [
    Number(state.exceeded),
    Number(state.algorithm !== 'concurrency'),
    state.retryAfterMs ?? 0,
  ];
  let best = 0;
  for (const [place, state] of states.entries()) {
    const [mine, other] = [order(state), order(states[best] as LimitState)];
    const differs = mine.findIndex((value, index) => value !== other[index]);
    if (differs >= 0 && (mine[differs] as number) > (other[differs] as number)) best = place;
  }
  return best;
}

/** Returns the rest of a block of the key, or 0. No limit names such a wait. */
function blockedMs(decision: Decision): number {
  const waitMs = decision.retryAfterMs ?? 0;
  return decision.limits.every((state) => waitMs > (state.retryAfterMs ?? 0)) ? waitMs : 0;
}

const lines = new Map<string, Policy>();

function lineOf(count: number, periodMs: number): Policy {
  const id = `${count}/${periodMs}`;
  if (lines.size >= MAX_LINES && !lines.has(id)) lines.clear();
  const room = Math.min(count * Math.max(50, Math.ceil(LINE_MS / periodMs)), MOST);
  return kept(
    lines,
    id,
    () => new Policy([new Limit('leaky-bucket', count, { period: periodMs, burst: Math.max(room, count) })]),
  );
}
