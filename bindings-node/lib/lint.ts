import type { Place } from './errors.js';
import { native, unwrap } from './native.js';

/** Something in a policy file that probably does not do what it seems to. */
export interface LintWarning {
  /** The policy's name. */
  readonly policy: string;
  /** Where it stands in the file. */
  readonly place?: Place;
  /** What is odd, and what to do about it. */
  readonly message: string;
}

/** Every warning about a policy file. Throws a PolicyError for a file that is not valid. */
export function lint(path: string): readonly LintWarning[] {
  return unwrap(native.lint(path));
}
