// The limited handlers that each application serves at /login and /exports.

import { Limiter } from 'tidegate';
import { clientIp, rateLimit } from 'tidegate/web';

// A bundler may load this file more than once in a process.
globalThis.limiter ??= new Limiter({ policies: { login: '5/minute', exports: 'concurrency 1' } });
const options = { limiter: globalThis.limiter, key: clientIp({ trustedProxies: 1 }) };
const limitLogin = rateLimit({ ...options, policy: 'login' });
const limitExports = rateLimit({ ...options, policy: 'exports' });
const endless = () => new ReadableStream({ start: (body) => body.enqueue(new TextEncoder().encode('first')) });

export const login = limitLogin((request) => new Response(`${request.rateLimit?.remaining} left\n`));
export const download = limitExports(() => new Response(endless()));
