// A storage for @nestjs/throttler 6, for services that use that package.
//
//     ThrottlerModule.forRoot({ throttlers: [{ ttl: 60_000, limit: 100 }], storage: new TidegateStorage({ limiter }) });
//
// A hit is a check. It is counted if it is admitted, and a refusal begins the block, in one step for all processes.

import type { ThrottlerStorage } from '@nestjs/throttler';
import type { Limiter } from './limiter.js';
import { answered, keptPolicy, numberOfHits, type PeerStoreOptions, storeOptions } from './peer-stores.js';
import { Limit, Policy } from './policy.js';

/** The options of the storage. The default prefix is `throttler:`. */
export interface TidegateStorageOptions extends PeerStoreOptions {}

type ThrottlerRecord = Awaited<ReturnType<ThrottlerStorage['increment']>>;

const WHERE = 'tidegate/nestjs-throttler';

/** A limit of more hits than this is counted in granules, because an exact log of them would be large. */
const MAX_EXACT = 1000;

/** Counts the hits of clients. */
export class TidegateStorage implements ThrottlerStorage {
  readonly #limiter: Limiter;
  readonly #prefix: string;

  constructor(options: TidegateStorageOptions) {
    const { limiter, prefix } = storeOptions(options, WHERE, 'throttler:');
    this.#limiter = limiter;
    this.#prefix = prefix;
  }

  /** Counts a hit. Durations are in milliseconds. Those of the record are in seconds, as the package has them. */
  async increment(
    key: string,
    ttl: number,
    limit: number,
    blockDuration: number,
    throttlerName: string,
  ): Promise<ThrottlerRecord> {
    const named = { ttl, limit, blockDuration };
    for (const [what, given] of Object.entries(named)) numberOfHits(given, what, WHERE);
    const policy = policyOf(ttl, limit, blockDuration);
    const name = `${this.#prefix}${throttlerName}:${key}`;
    const decision = answered(await this.#limiter.check(policy, name));
    const timeToExpire = seconds(decision.limits[0]?.resetAfterMs ?? 0);
    if (decision.allowed) {
      return { totalHits: decision.limit - decision.remaining, timeToExpire, isBlocked: false, timeToBlockExpire: 0 };
    }
    // A denial by a running block exceeds no limit.
    const beganBlock = decision.limits.some(({ exceeded }) => exceeded);
    // After a block that is shorter than its window, a client begins anew, as in the package's own storage.
    if (blockDuration > 0 && blockDuration < ttl && limit > 0 && beganBlock) {
      await this.#limiter.refund(policy, name, { cost: limit });
      return { totalHits: limit + 1, timeToExpire, isBlocked: true, timeToBlockExpire: seconds(blockDuration) };
    }
    const timeToBlockExpire = seconds(decision.retryAfterMs ?? (blockDuration > 0 ? blockDuration : ttl));
    return { totalHits: limit + 1, timeToExpire, isBlocked: true, timeToBlockExpire };
  }
}

function policyOf(ttl: number, limit: number, blockDuration: number): Policy {
  return keptPolicy(`${ttl}/${limit}/${blockDuration}`, () => {
    const algorithm = limit > MAX_EXACT ? 'sliding-window' : 'sliding-log';
    const limits = [new Limit(algorithm, Math.max(0, Math.floor(limit)), { period: Math.max(1, ttl) })];
    return new Policy(limits, blockDuration > 0 ? { blockFor: blockDuration } : {});
  });
}

function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
