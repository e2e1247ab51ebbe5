import { TidegateError } from 'tidegate';

/** Says what is wrong about an error, if anything is. */
export function mistake(error, code, says) {
  if (!(error instanceof TidegateError)) return `${error?.stack ?? error}`;
  if (error.code !== code) return `${error.code}: ${error.message}`;
  if (!says.test(error.message)) return `does not match ${says}: ${error.message}`;
  return error.message.includes('secret') ? `shows a secret: ${error.message}` : undefined;
}
