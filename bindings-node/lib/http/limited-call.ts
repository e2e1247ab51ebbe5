// Calls that are no exchange of HTTP, such as those of tRPC and MCP. They take the way of a request, and an error is their refusal.

import type { CancelSignal } from '../cancel-signal.js';
import { delay } from '../delay.js';
import type { Adapter, RequestAdapter } from './adapter.js';
import { admit } from './admission.js';
import { type Refused, retryAfter } from './refusal.js';
import type { Settings } from './settings.js';

/** Reads the calls of one framework. */
type CallAdapter<Call> = Pick<RequestAdapter<Call>, 'name' | 'path' | 'header' | 'withoutPeer' | 'user' | 'claims'>;

/** Returns the adapter of calls. `refusal` makes the error of a refused one. */
export function callAdapter<Call extends object, Result>(
  calls: CallAdapter<Call>,
  refusal: (refused: Refused, message: string) => Error,
): Adapter<Call, Result> {
  return {
    ...calls,
    memory: (call) => call,
    method: () => '',
    peer: () => undefined,
    overUnix: () => false,
    seesHandlers: true,
    throwsRefusals: true,
    setField: () => undefined,
    setStatus: () => undefined,
    refuse(_response, body, refused) {
      if (body === undefined) throw refusal(refused, messageOf(refused));
      if (body instanceof Error) throw body;
      return body;
    },
  };
}

/** Returns a message that a person and a model understand. */
function messageOf({ decision, status }: Refused): string {
  const wait = retryAfter(decision);
  if (status === 503) return `The store of the rate limit is not available: wait ${wait} s, then try again`;
  if (wait === null) return 'Rate limit exceeded: this call is more than is ever allowed, so do not try it again';
  return `Rate limit exceeded: wait ${wait} s, then try again`;
}

/** Runs a call under its limits. Its holds end with it. */
export async function runLimited<Call extends object, Result>(
  settings: Settings<Call, Result> | undefined,
  call: Call,
  run: () => Promise<Result>,
  signal?: CancelSignal,
): Promise<Result> {
  const admission = settings && (await admit(settings, call));
  if (admission === undefined) return run();
  let result: Result | undefined;
  if (!admission.admitted) return (await admission.refuse(result as Result)) as Result;
  try {
    await delay(admission.delayMs, signal);
    result = await run();
    return result;
  } finally {
    admission.end(result as Result);
  }
}
