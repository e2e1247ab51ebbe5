import { clientIp, rateLimit } from 'tidegate/web';
import { limiter } from '../../limits.mjs';

const limit = rateLimit({ limiter, policy: 'concurrency 1', key: clientIp({ trustedProxies: 1 }) });
const endless = () => new ReadableStream({ start: (body) => body.enqueue(new TextEncoder().encode('first')) });

export const GET = limit(() => new Response(endless()));
