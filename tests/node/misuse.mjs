import { TidegateError } from 'tidegate';

/** Describes how an error differs from the expected one, if it does. */
export function mistake(error, code, says) {
  if (!(error instanceof TidegateError)) return `${error?.stack ?? error}`;
  if (error.code !== code) return `${error.code}: ${error.message}`;
  if (!says.test(error.message)) return `does not match ${says}: ${error.message}`;
  return error.message.includes('secret') ? `shows a secret: ${error.message}` : undefined;
}
