// One process of `processes.test.mjs`.

import process from 'node:process';
import express from 'express';
import { Limiter } from 'tidegate';
import { rateLimit } from 'tidegate/express';

const [, , store, login] = process.argv;
const limiter = new Limiter({ store, policies: { login }, timeoutMs: 20_000 });
const app = express();
app.use(rateLimit({ limiter, policy: 'login' }));
app.get('/', (_request, response) => response.send('hello'));
const server = app.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
