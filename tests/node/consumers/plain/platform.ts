// The signals of the platform cancel calls, whichever declares them.

import { type CancelSignal, Limiter } from 'tidegate';

const controller = new AbortController();
const signal: CancelSignal = controller.signal;
const limiter = new Limiter({ logger: console });
void limiter.acquire('5/s', 'a', { signal: AbortSignal.timeout(5) });
void limiter.hold('concurrency 5', 'a', { signal });
// @ts-expect-error the controller is not its signal
void limiter.acquire('5/s', 'a', { signal: controller });
