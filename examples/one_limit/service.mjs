// The Express half of a login that has one limit over two services.
//
//     npm install tidegate express
//     node service.mjs

import { fileURLToPath } from 'node:url';
import express from 'express';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/express';

const limiter = await Limiter.fromFile(fileURLToPath(new URL('tidegate.yaml', import.meta.url)));
const app = express();
app.post('/login', rateLimit({ limiter, policy: 'login' }), (_request, response) => response.send('welcome to Express\n'));

const server = app.listen(process.env.PORT ?? 3000, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
