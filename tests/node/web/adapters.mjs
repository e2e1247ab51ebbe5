// The adapters that the tests of `each_adapter.mjs` run with.

import { onExpress4, onExpress5 } from './servers/express.mjs';
import { onFastify4, onFastify5 } from './servers/fastify.mjs';
import { onBareHono, onHono } from './servers/hono.mjs';
import { onKoa } from './servers/koa.mjs';
import { onNestExpress, onNestFastify } from './servers/nest.mjs';
import { onBareWeb, onHostedWeb, onWeb } from './servers/web.mjs';

export const adapters = [
  onExpress4,
  onExpress5,
  onFastify4,
  onFastify5,
  onKoa,
  onHono,
  onBareHono,
  onWeb,
  onBareWeb,
  onHostedWeb,
  onNestExpress,
  onNestFastify,
];
