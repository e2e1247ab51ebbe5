import { ConfigError, checkText, describe, PolicyError } from './errors.js';
import { isRecord } from './given-options.js';
import { type PolicyDescription, policyNamed } from './limiter-options.js';
import { native, unwrap } from './native.js';
import { type LintWarning, nativePolicyOf, Policy } from './policy.js';

/** The sources of a lint: the path of a policy file, a notation, a Policy, or policies by name as a limiter takes them. */
export type LintSource = string | Policy | Readonly<Record<string, string | Policy | PolicyDescription>>;

/**
 * Returns every warning about a policy file, a notation, a Policy, or policies by name. A text that ends like the name of a
 * file is a path. Throws a PolicyError if the source is not valid.
 *
 * ```ts
 * lint('tidegate.yaml');
 * lint('10/10s; 600/600s'); // 600/10 minutes never decides anything
 * ```
 */
export function lint(source: LintSource): readonly LintWarning[] {
  if (typeof source === 'string') {
    return unwrap(native.lint(checkText(source, 'the path of a policy file, or a notation,', PolicyError)));
  }
  if (source instanceof Policy) return source.lint();
  if (!isRecord(source)) {
    throw new ConfigError(
      `lint must get the path of a policy file, a notation, a Policy, or policies by name, not ${describe(source)}`,
    );
  }
  const names = Object.keys(source);
  for (const name of names) checkText(name, 'the name of a policy', PolicyError);
  const policies = Object.entries(source).map(([name, policy]) => nativePolicyOf(policyNamed(name, policy)));
  return unwrap(native.lintPolicies(names, policies));
}
