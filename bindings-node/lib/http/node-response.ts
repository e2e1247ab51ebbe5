// What adapters share whose responses are those of Node's own server.

import type { ServerResponse } from 'node:http';
import { delay } from '../delay.js';
import type { Admission } from './admission.js';

/** Ends an admission when the response ends: its last byte was handed over, or its client has gone. */
export function endWithResponse<Request extends object, Response>(
  admission: Admission<Request, Response>,
  response: ServerResponse,
  framework: Response,
): void {
  if (!admission.needsEnd) return;
  const end = (): void => admission.end(framework);
  if (isClosed(response)) end();
  response.once('finish', end);
  response.once('close', end);
}

/** Ends the admission with its response, and waits for its delay. False when no handler should start any more. */
export async function isAwaited<Request extends object, Response>(
  admission: Admission<Request, Response>,
  response: ServerResponse,
  framework: Response,
): Promise<boolean> {
  endWithResponse(admission, response, framework);
  await delay(admission.delayMs);
  return !isClosed(response);
}

/** A response of Node. That of HTTP/2 is no stream, but has one. */
interface Closable {
  readonly destroyed?: boolean;
  readonly writableFinished?: boolean;
  readonly stream?: { readonly destroyed: boolean };
}

/** Whether a response is over: it was sent, or its client has gone. Then no handler should start. */
export function isClosed({ destroyed, writableFinished, stream }: Closable): boolean {
  return destroyed === true || writableFinished === true || stream?.destroyed === true;
}
