// Explains why the compiled addon could not be loaded. The generated loader blames npm for every failure.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import process from 'node:process';

import { ConfigError } from './errors.js';

/** True if the error only means that the place has no such file. */
function isAbsence(error: Error): boolean {
  return (error as { code?: unknown }).code === 'MODULE_NOT_FOUND' || /^Cannot find /.test(error.message);
}

/** Returns the error to throw if the loader fails. `folder` is the folder of the file that called the loader. */
export function loadFailure(error: unknown, folder: string): ConfigError {
  const machine = `${process.platform} ${process.arch}`;
  const failure = new ConfigError(reason(error, folder, machine));
  // The loader's own message is left out.
  failure.cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  return failure;
}

function reason(error: unknown, folder: string, machine: string): string {
  // There is an error for each place where the loader looked for the addon.
  let broken = error;
  while (broken instanceof Error && isAbsence(broken)) broken = broken.cause;
  if (!existsSync(join(folder, '../binding/index.js'))) {
    return (
      `tidegate is part of a bundle in ${folder}, and its compiled addon for ${machine}, a file that ends with .node, cannot ` +
      "be loaded from there. Leave tidegate out of the bundle and install it beside it: mark 'tidegate' as external " +
      "(esbuild: --external:tidegate; webpack: externals: { tidegate: 'commonjs tidegate' }; Rollup and Vite: external: " +
      "['tidegate']; Next.js: serverExternalPackages: ['tidegate'])"
    );
  }
  if (broken instanceof Error)
    return `the compiled addon of tidegate for ${machine} cannot be loaded: ${broken.message}`;
  return (
    `the compiled addon of tidegate for ${machine} is not installed. It is an optional dependency of the package: install on ` +
    'the machine that runs it, or for its platform, and without --omit=optional'
  );
}
