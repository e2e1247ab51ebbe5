// Whether limits are applied at all: tests and a development machine turn them off in one place.

import process from 'node:process';
import { ConfigError, describe } from '../errors.js';

const ON = ['1', 'true', 'yes', 'on'];
const OFF = ['0', 'false', 'no', 'off'];

/** The option `enabled`; without it the environment variable `TIDEGATE_ENABLED`; without that, true. */
export function isEnabled(option: unknown, where: string): boolean {
  if (typeof option === 'boolean') return option;
  if (option !== undefined) {
    throw new ConfigError(`${where}: the option enabled is ${describe(option)}: it must be true or false`);
  }
  const value = process.env['TIDEGATE_ENABLED']?.trim().toLowerCase() ?? '';
  if (value === '' || ON.includes(value)) return true;
  if (OFF.includes(value)) return false;
  throw new ConfigError(
    `${where}: the environment variable TIDEGATE_ENABLED is ${describe(value)}: it must be one of ${[...ON, ...OFF].join(', ')}`,
  );
}
