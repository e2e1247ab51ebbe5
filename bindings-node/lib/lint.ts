import { ConfigError, checkText, describe, PolicyError, type SourceLocation } from './errors.js';
import { native, unwrap } from './native.js';

/** A limit in a policy file that probably does not do what its author meant. */
export interface LintWarning {
  /** The policy's name. */
  readonly policy: string;
  /** Its position in the file. */
  readonly place?: SourceLocation;
  /** What is suspicious, and what to do about it. */
  readonly message: string;
}

/** Every warning about a policy file. Throws a PolicyError for a file that is not valid. */
export function lint(path: string): readonly LintWarning[] {
  if (typeof path !== 'string') throw new ConfigError(`a policy file cannot be ${describe(path)}: give its path`);
  checkText(path, 'the path of a policy file', PolicyError);
  return unwrap(native.lint(path));
}
