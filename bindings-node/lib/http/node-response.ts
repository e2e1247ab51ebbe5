// What adapters share whose responses are those of Node's own server.

import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Admission } from './admission.js';

/** Ends an admission when the response ends: its last byte was handed over, or its client has gone. */
export function endWithResponse<Request extends object, Response>(
  admission: Admission<Request, Response>,
  response: ServerResponse,
  framework: Response,
): void {
  if (!admission.needsEnd) return;
  const end = (): void => admission.end(framework);
  if (response.writableFinished || response.destroyed) end();
  response.once('finish', end);
  response.once('close', end);
}

/** Waits out the delay of an admitted request. */
export async function waitFor(delayMs: number): Promise<void> {
  if (delayMs > 0) await sleep(delayMs);
}
