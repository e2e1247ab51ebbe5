// The options of outgoing calls, the same for every client.

import type { Cost } from './cost.js';
import type { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType, ownOptions } from './given-options.js';
import { Limiter } from './limiter.js';
import type { SettleReader } from './outgoing.js';
import type { PolicyLike } from './policy.js';
import { unwrapped } from './tracing.js';
import { checkMade } from './wrap.js';

/** The platform's `Headers`, if the types of your program have them. */
export type WebHeaders = typeof globalThis extends { Headers: { prototype: infer H } } ? H : unknown;

/** A request, as the functions among the options get it. */
export interface OutgoingRequest {
  /** In upper case. */
  readonly method: string;
  readonly url: string;
  readonly headers: WebHeaders;
  /** A text or bytes. Undefined if there is no body, or if it is a stream or a form. */
  readonly body: string | Uint8Array | undefined;
}

/** The head of a response, as `settle` gets it. */
export interface OutgoingResponse {
  readonly status: number;
  readonly headers: WebHeaders;
}

/** The options that limit outgoing calls. */
export interface PacedOptions {
  /** The limiter to ask. */
  limiter: Limiter;
  /**
   * A name, a notation, a Policy, or a function of the request that returns one of these. Without it, or if the
   * function returns undefined, only the limits in responses apply.
   */
  policy?: PolicyLike | ((request: OutgoingRequest) => PolicyLike | undefined) | undefined;
  /**
   * The key, or a function of the request. Default: the origin of the request, such as `https://api.example.com`. For a
   * redirect to another origin the key is that origin, unless the function returns another key than before.
   */
  key?: string | ((request: OutgoingRequest) => string) | undefined;
  /** The units that each call consumes, or a function of the request. Default: 1. */
  cost?: Cost | ((request: OutgoingRequest) => Cost) | undefined;
  /**
   * Called with the head of a response. Returns the actual cost of the call: a number, numbers by the names of units,
   * undefined to keep the charge, or an object that reads the body and returns the cost at its end.
   */
  settle?: ((response: OutgoingResponse, request: OutgoingRequest) => Cost | SettleReader | undefined) | undefined;
  /** The longest time that a request waits, including its retries. `Infinity` means as long as it takes. Default: 30 s. */
  timeoutMs?: number | undefined;
  /**
   * The most times to send a request again after a 429 or 503 that names a wait. The method must be GET, HEAD, OPTIONS,
   * TRACE, PUT or DELETE, or the request must have an `Idempotency-Key`, and its body must be repeatable. Default: 0.
   */
  retries?: number | undefined;
  /** Learns from responses. Default: true. */
  learn?: boolean | undefined;
  /** The largest difference between requests in the time to the server. Default: 50 ms. */
  marginMs?: number | undefined;
  /** The class of the calls, one of the policy's `priorities`, or a function of the request. */
  priority?: string | ((request: OutgoingRequest) => string | undefined) | undefined;
  /** Called before a request waits, with the Decision and its wait. */
  onWait?: ((decision: Decision, waitMs: number) => void) | undefined;
  /** The prefix of each key. Default: `out:`. */
  prefix?: string | undefined;
  /** The longest wait to believe from a response. Default: an hour. */
  maxLearnedWaitMs?: number | undefined;
  /** True to answer a refusal with a response of status 429 instead of throwing RateLimited. Default: false. */
  respond?: boolean | undefined;
}

const DEFAULTS = {
  cost: 1,
  timeoutMs: 30_000,
  retries: 0,
  learn: true,
  marginMs: 50,
  prefix: 'out:',
  respond: false,
} as const;

const TYPES = {
  settle: ['function'],
  timeoutMs: ['number'],
  retries: ['number'],
  learn: ['boolean'],
  marginMs: ['number'],
  onWait: ['function'],
  prefix: ['string'],
  maxLearnedWaitMs: ['number'],
  respond: ['boolean'],
} as const;
const NAMES = ['limiter', 'policy', 'key', 'cost', 'priority', ...Object.keys(TYPES)];
/** The most for `marginMs` and `maxLearnedWaitMs`, longer than any that makes sense. */
const MAX_MS = 366 * 86_400_000;

/** The options with their defaults. */
export type Pacing = PacedOptions & { [Name in keyof typeof DEFAULTS]: NonNullable<PacedOptions[Name]> };

/** Checks the options. `more` are the names of options that only one client has. */
export function checkedPacing(all: PacedOptions, where: string, more: readonly string[] = []): Pacing {
  const names = [...NAMES, ...more];
  const options = ownOptions(checkOptions(all, names, where), names);
  if (!(unwrapped(options.limiter) instanceof Limiter)) {
    throw new ConfigError(
      `${where}: the option limiter must be a Limiter of tidegate, not ${describe(options.limiter)}`,
    );
  }
  for (const [name, types] of Object.entries(TYPES)) {
    const value: unknown = options[name as keyof PacedOptions];
    if (value !== undefined) checkType(`${where}: ${name}`, value, types);
  }
  const { timeoutMs, retries, marginMs, maxLearnedWaitMs } = options;
  const within = (name: string, value: number | undefined, isFine: boolean, must: string): void => {
    if (value !== undefined && !isFine) throw new ConfigError(`${where}: ${name} must be ${must}, not ${value}`);
  };
  within('timeoutMs', timeoutMs, (timeoutMs ?? 0) >= 0, 'a number of milliseconds, or Infinity');
  within('retries', retries, Number.isSafeInteger(retries) && (retries ?? 0) >= 0, 'a whole number from 0');
  for (const [name, value] of Object.entries({ marginMs, maxLearnedWaitMs })) {
    within(name, value, (value ?? 0) >= 0 && (value ?? 0) <= MAX_MS, `a number of milliseconds from 0 to ${MAX_MS}`);
  }
  checkMade(options.key ?? '', options.cost, options.priority);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  return { ...options, ...DEFAULTS, ...given } as Pacing;
}
