// The options of calls that go out: the same for every client.

import type { Cost } from './cost.js';
import type { Decision } from './decision.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType, ownOptions } from './given-options.js';
import { Limiter } from './limiter.js';
import type { SettleReader } from './outgoing.js';
import type { PolicyLike } from './policy.js';
import { unwrapped } from './tracing.js';
import { checkMade } from './wrap.js';

/** The platform's `Headers`, where the program that is compiled knows them. */
export type WebHeaders = typeof globalThis extends { Headers: { prototype: infer H } } ? H : unknown;

/** A request as the functions among the options see it. */
export interface OutgoingRequest {
  /** In upper case. */
  readonly method: string;
  readonly url: string;
  readonly headers: WebHeaders;
  /** A text, or bytes. Missing where there is none, and where it is a stream or a form. */
  readonly body: string | Uint8Array | undefined;
}

/** The head of a response as `settle` sees it. */
export interface OutgoingResponse {
  readonly status: number;
  readonly headers: WebHeaders;
}

/** How calls that go out are limited. */
export interface PacedOptions {
  /** The limiter that is asked. */
  limiter: Limiter;
  /**
   * A name, a notation, a Policy, or a function of the request that returns one of these. Left out, and where the function returns
   * undefined: only what responses say.
   */
  policy?: PolicyLike | ((request: OutgoingRequest) => PolicyLike | undefined) | undefined;
  /**
   * The key, or a function of the request. Default: its origin, as in `https://api.example.com`. A redirect to another origin has that
   * one as its key, unless the function returns another key than before.
   */
  key?: string | ((request: OutgoingRequest) => string) | undefined;
  /** Units each call consumes, or a function of the request. Default: 1. */
  cost?: Cost | ((request: OutgoingRequest) => Cost) | undefined;
  /**
   * What a call has really cost, by the head of its response: a number, numbers by the names of units, undefined for what was
   * charged, or an object that reads the body and says it at the end.
   */
  settle?: ((response: OutgoingResponse, request: OutgoingRequest) => Cost | SettleReader | undefined) | undefined;
  /** The longest that a request waits, its retries included. `Infinity` is as long as it takes. Default: 30 s. */
  timeoutMs?: number | undefined;
  /**
   * How often a 429 or 503 that names a wait is sent again: of GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and of any other method with
   * an `Idempotency-Key`, where the body can be sent again. Default: 0.
   */
  retries?: number | undefined;
  /** Learns from responses. Default: true. */
  learn?: boolean | undefined;
  /** How much the way to the server may differ from one request to the next. Default: 50 ms. */
  marginMs?: number | undefined;
  /** The class of the calls, one of the policy's `priorities`, or a function of the request. */
  priority?: string | ((request: OutgoingRequest) => string | undefined) | undefined;
  /** Called before a request waits: with the Decision, and the wait that it names. */
  onWait?: ((decision: Decision, waitMs: number) => void) | undefined;
  /** What stands before each key. Default: `out:`. */
  prefix?: string | undefined;
  /** The longest wait that a response is believed. Default: an hour. */
  maxLearnedWaitMs?: number | undefined;
  /** Answers a refusal with a response of status 429 instead of RateLimited. Default: false. */
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
/** The longest of the times that are no timeout: longer than any that makes sense. */
const MAX_MS = 366 * 86_400_000;

/** The options with their defaults. */
export type Pacing = PacedOptions & { [Name in keyof typeof DEFAULTS]: NonNullable<PacedOptions[Name]> };

/** The options, checked. `more` are those that one client alone has. */
export function checkedPacing(all: PacedOptions, where: string, more: readonly string[] = []): Pacing {
  const names = [...NAMES, ...more];
  const options = ownOptions(checkOptions(all, names, where), names);
  if (!(unwrapped(options.limiter) instanceof Limiter)) {
    throw new ConfigError(`${where}: the option limiter is ${describe(options.limiter)}: give a Limiter of tidegate`);
  }
  for (const [name, types] of Object.entries(TYPES)) {
    const value: unknown = options[name as keyof PacedOptions];
    if (value !== undefined) checkType(`${where}: ${name}`, value, types);
  }
  const { timeoutMs, retries, marginMs, maxLearnedWaitMs } = options;
  const within = (name: string, value: number | undefined, isFine: boolean, must: string): void => {
    if (value !== undefined && !isFine)
      throw new ConfigError(`${where}: ${name} cannot be ${value}: it must be ${must}`);
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
