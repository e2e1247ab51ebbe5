// One worker of `trpc.test.mjs`.
//
//     node served_trpc.mjs STORE NOTATION

import process from 'node:process';
import { initTRPC } from '@trpc/server';
import { createHTTPServer } from '@trpc/server/adapters/standalone';
import { Limiter } from 'tidegate';
import { errorFormatter, limited } from 'tidegate/trpc';

const [, , store, calls] = process.argv;
const limiter = new Limiter({ store, policies: { calls }, timeoutMs: 20_000 });
const t = initTRPC.create({ errorFormatter });
const count = t.procedure.use(limited({ limiter, policy: 'calls', key: () => 'all' })).mutation(() => 'counted');
const server = createHTTPServer({ router: t.router({ count }) });
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
