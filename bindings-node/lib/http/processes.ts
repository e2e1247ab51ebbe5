// Warns of usage in memory if several processes serve one application.

import cluster from 'node:cluster';
import { accessSync, constants } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { isLocal, type Limiter } from '../limiter.js';
import { emitWarning } from '../store-changes.js';

let warned = false;

/** Warns once that limits are not shared, in a process that is plainly one of several and keeps usage for itself. */
export function warnOfMemory(limiter: Limiter): void {
  if (warned || !isLocal(limiter)) return;
  const processes = processesOf();
  if (processes === undefined) return;
  warned = true;
  emitWarning(
    `this process is one of the ${processes}, and with the store memory:// each of them counts for itself: together they admit ` +
      'every limit as often as there are processes. Processes of one machine share their limits in a file, ' +
      `store: '${fileOf()}', those of several machines on a Redis server, store: 'redis://…'`,
  );
}

/** Returns the URL of a file that the user of this process can make. */
function fileOf(): string {
  let folder = tmpdir();
  try {
    accessSync(process.cwd(), constants.W_OK);
    folder = process.cwd();
  } catch {
    // The folder is gone, or may not be written to.
  }
  return pathToFileURL(join(folder, 'limits')).href;
}

/** Returns the processes that this one plainly belongs to. Undefined if it may be the only one. */
function processesOf(): string | undefined {
  const { pm_id, instances, NODE_APP_INSTANCE, exec_mode } = process.env;
  // If an application with one instance was scaled, `instances` stays 1.
  if (pm_id !== undefined && (Number(instances) > 1 || Number(NODE_APP_INSTANCE) > 0)) return 'processes of PM2';
  // PM2 makes a cluster of one process, too.
  return cluster.isWorker && exec_mode !== 'cluster_mode' ? 'workers of a cluster' : undefined;
}
