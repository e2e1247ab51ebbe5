// What the decorators of Nest say, as metadata of handlers and controllers.

import { type CustomDecorator, SetMetadata } from '@nestjs/common';
import { ConfigError, describe, shortened } from './errors.js';
import { routeOptions } from './http/layers.js';
import { knownNames } from './http/option-names.js';
import type { LayerOptions, PolicyChoice, PolicyOption } from './http/rate-limit-options.js';
import { Policy } from './policy.js';

/** The metadata keys of limits, and of the names of policies that do not apply. */
export const LIMITS = 'tidegate:rate-limit';
export const SKIPS = 'tidegate:skip-policies';

/** Whether any decorator of this process limits something. */
export let isAnythingLimited = false;

/** The metadata of limits, which are checked where they are written. */
export function limitsMetadata(limits: unknown): CustomDecorator<typeof LIMITS> {
  if (limits === undefined)
    throw new ConfigError('tidegate/nest: @RateLimit() without a policy limits nothing: name one');
  routeOptions(limits, 'tidegate/nest: @RateLimit');
  if (limits !== false) isAnythingLimited = true;
  return SetMetadata(LIMITS, limits);
}

export function skipsMetadata(policies: readonly unknown[]): CustomDecorator<string> {
  for (const policy of policies) {
    if (typeof policy !== 'string') {
      throw new ConfigError(`tidegate/nest: @SkipRateLimit takes names of policies, not ${describe(policy)}`);
    }
  }
  return SetMetadata(SKIPS, policies);
}

function choicesOf<Request>(option: PolicyOption<Request> | undefined): readonly unknown[] {
  if (option === undefined) return [];
  return Array.isArray(option) ? option : [option];
}

function nameOf(choice: unknown): unknown {
  const policy = typeof choice === 'object' && choice !== null && 'policy' in choice ? choice.policy : choice;
  return policy instanceof Policy ? policy.name : policy;
}

/** The options of a guard without some of its policies. */
export function withoutPolicies<Request, Response>(
  options: LayerOptions<Request, Response>,
  skipped: readonly string[],
): LayerOptions<Request, Response> {
  const { policy, default: each, application } = options;
  const names = [policy, each, application].flatMap(choicesOf).map(nameOf);
  for (const name of skipped) {
    if (names.includes(name)) continue;
    const known = names.filter((name) => typeof name === 'string');
    throw new ConfigError(
      `tidegate/nest: @SkipRateLimit names ${JSON.stringify(shortened(name))}, which is no policy of the guard: ${knownNames(name, known)}`,
    );
  }
  const rest = <T>(option: T): T | undefined => {
    if (option === undefined || typeof option === 'function') return option;
    const kept = choicesOf(option as PolicyChoice<Request>).filter(
      (choice) => !skipped.includes(nameOf(choice) as string),
    );
    return kept.length === 0 ? undefined : (kept as T);
  };
  return { ...options, policy: rest(policy), default: rest(each), application: rest(application) };
}
