// The cost of calls to large language models, for the clients of OpenAI, of Anthropic and of compatible services.
//
//     const policy = '500 requests/minute; 90000 tokens/minute';
//     const openai = new OpenAI({ fetch: pacedFetch({ limiter, policy, ...openaiPreset() }) });
//
// Each call is charged the cost that its request suggests, and settled to the cost in its response. A refusal becomes a response
// with status 429, which the clients throw as they throw that of the service.

import { Buffer } from 'node:buffer';

import type { Cost, CostByPolicy } from './cost.js';
import { ConfigError, describe } from './errors.js';
import { checkOptions, checkType } from './given-options.js';
import { type binding, native } from './native.js';
import type { SettleReader } from './outgoing.js';
import type { OutgoingRequest, OutgoingResponse } from './paced-options.js';

/** A unit that calls are counted in. */
export type LlmUnit = 'tokens' | 'input-tokens' | 'output-tokens';

/** Returns the number of tokens of a text, or a value of that length, such as a list of them. */
export type Tokenizer = (text: string) => number | { readonly length: number };

/** The options of a preset. */
export interface LlmPresetOptions {
  /** Counts the tokens of a text. Without it, four bytes are a token until responses show the real numbers. */
  readonly tokenizer?: Tokenizer | undefined;
  /** The names of the charged units. Default: those that the policy of the transport counts. `requests` need no name. */
  readonly units?: readonly LlmUnit[] | undefined;
  /**
   * Sets how the service counts the tokens of an answer. `bound`: the most that a request allows, when it arrives.
   * `used`: those that were used.
   */
  readonly output?: 'bound' | 'used' | undefined;
  /** The assumed tokens of an answer if the request sets no bound, until responses show the real numbers. Default: 1024. */
  readonly defaultOutput?: number | undefined;
  /** The class of the calls, or a function of the request. */
  readonly priority?: string | ((request: OutgoingRequest) => string | undefined) | undefined;
  /** True to learn the limits that responses announce, as in the options of the transport. Default: true. */
  readonly learn?: boolean | undefined;
}

/** The options that a preset gives a transport. */
export interface LlmPreset {
  readonly cost: (request: OutgoingRequest) => Cost;
  readonly settle: (response: OutgoingResponse, request: OutgoingRequest) => SettleReader | undefined;
  readonly respond: true;
  readonly learn: boolean;
  readonly priority?: string | ((request: OutgoingRequest) => string | undefined);
}

const UNITS: readonly LlmUnit[] = ['tokens', 'input-tokens', 'output-tokens'];
const OPTIONS = {
  tokenizer: ['function'],
  units: ['list', 'string'],
  output: ['string'],
  defaultOutput: ['number'],
  priority: ['string', 'function'],
  learn: ['boolean'],
};

/**
 * Returns options for a client of OpenAI: chat completions, responses, embeddings and completions. When a request
 * arrives, OpenAI counts the most tokens that it allows for its answer.
 */
export function openaiPreset(options: LlmPresetOptions = {}): LlmPreset {
  return preset('openai', ['tokens'], options);
}

/**
 * Returns options for a client of Anthropic: messages. Anthropic counts input and answers separately, answers as they are
 * used, and does not count tokens that it reads from a cache. The usual length of answers is learned for each model.
 */
export function anthropicPreset(options: LlmPresetOptions = {}): LlmPreset {
  return preset('anthropic', ['input-tokens', 'output-tokens'], options);
}

function preset(service: 'openai' | 'anthropic', usual: readonly LlmUnit[], given: LlmPresetOptions): LlmPreset {
  const name = `${service}Preset`;
  const options = checkOptions(given, Object.keys(OPTIONS), name, "output: 'used'");
  for (const [option, types] of Object.entries(OPTIONS)) {
    const value = options[option as keyof typeof OPTIONS];
    if (value !== undefined) checkType(option, value, types);
  }
  const { tokenizer, units, output, defaultOutput, priority, learn = true } = options;
  if (typeof units === 'string' || units?.length === 0 || units?.some((unit) => !UNITS.includes(unit))) {
    throw new ConfigError(`units must be a list of some of ${UNITS.join(', ')}, not ${describe(units)}`);
  }
  if (output !== undefined && output !== 'bound' && output !== 'used') {
    throw new ConfigError(`output must be 'bound' or 'used', not ${describe(output)}`);
  }
  if (defaultOutput !== undefined && !(Number.isSafeInteger(defaultOutput) && defaultOutput >= 0)) {
    throw new ConfigError(`defaultOutput must be a whole number of tokens, not ${describe(defaultOutput)}`);
  }
  const counts = output === undefined ? undefined : output === 'used';
  const estimator = native.TokenEstimator.of(service, counts, defaultOutput);
  const charged = new WeakMap<object, { units: readonly LlmUnit[]; estimate: binding.TokenEstimate }>();
  const ofPolicies = new WeakMap<object, readonly LlmUnit[]>();
  const counted = (by: ReadonlySet<string>): readonly LlmUnit[] => units ?? UNITS.filter((unit) => by.has(unit));
  const cost = (request: OutgoingRequest): Cost => {
    const path = new URL(request.url).pathname;
    const body = Buffer.from(request.body ?? '');
    const tokens = tokenizer && textTokens(tokenizer, native.textsOfRequest(path, body));
    const estimate = estimator.estimate(path, body, tokens);
    const named = ofPolicies.get(request) ?? units ?? usual;
    if (estimate !== null) charged.set(request, { units: named, estimate });
    return costOf(named, estimate?.tokens ?? NO_TOKENS);
  };
  const byPolicy: CostByPolicy = {
    counts: (request, by) => void ofPolicies.set(request, counted(by)),
    nothingOf: (by) => costOf(counted(by), NO_TOKENS),
  };
  return {
    cost: Object.assign(cost, byPolicy),
    settle: ({ status }, request) => {
      const call = charged.get(request);
      if (call === undefined) return undefined;
      charged.delete(request);
      const { units, estimate } = call;
      const reader = native.UsageReader.empty();
      return {
        feed: (chunk) => reader.feed(chunk),
        end: () => {
          const tokens = estimator.settle(estimate, reader, status);
          const known = tokens === null ? {} : unitsOf(units, tokens);
          return Object.keys(known).length === 0 ? undefined : known;
        },
      };
    },
    respond: true,
    learn,
    ...(priority !== undefined && { priority }),
  };
}

const NO_TOKENS: binding.Tokens = { input: 0, output: 0 };

/** Returns the charge of a call. A policy that counts no tokens counts the request. */
function costOf(units: readonly LlmUnit[], tokens: binding.Tokens): Cost {
  return units.length === 0 ? 1 : unitsOf(units, tokens);
}

/** Returns the units of the tokens that are known. */
function unitsOf(units: readonly LlmUnit[], { input, output }: binding.Tokens): Record<string, number> {
  const both = input == null || output == null ? undefined : Math.min(input + output, Number.MAX_SAFE_INTEGER);
  const known = { tokens: both, 'input-tokens': input, 'output-tokens': output };
  return Object.fromEntries(units.flatMap((unit) => (known[unit] == null ? [] : [[unit, known[unit]]])));
}

function textTokens(tokenizer: Tokenizer, texts: readonly string[]): number {
  let sum = 0;
  for (const text of texts) {
    const counted = tokenizer(text);
    const tokens = typeof counted === 'number' ? counted : counted?.length;
    if (!(Number.isSafeInteger(tokens) && tokens >= 0)) {
      throw new ConfigError(
        `tokenizer returned ${describe(counted)}: it must return the number of tokens of a text, or a list of them`,
      );
    }
    sum += tokens;
  }
  return Math.min(sum, Number.MAX_SAFE_INTEGER);
}
