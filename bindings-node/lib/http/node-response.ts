// What adapters share whose responses are those of Node's own server.

import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Admission } from './admission.js';

/** Does what is due when a response is over: its last byte was handed over, or its client has gone. */
export function attend<Request extends object, Response>(
  admission: Admission<Request, Response>,
  response: ServerResponse,
  framework: Response,
): void {
  if (!admission.pending) return;
  const over = (): void => admission.over(framework);
  if (response.writableFinished || response.destroyed) over();
  response.once('finish', over);
  response.once('close', over);
}

/** Waits until it is the turn of an admitted request. */
export async function turn(delayMs: number): Promise<void> {
  if (delayMs > 0) await sleep(delayMs);
}
