#!/usr/bin/env node
// The command `tidegate`: `npx tidegate --help` lists its verbs.

import process from 'node:process';

import { native } from './native.js';

process.exitCode = native.runCommand(['tidegate', ...process.argv.slice(2)]);
