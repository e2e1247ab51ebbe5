// A project with @fastify/rate-limit. It is apart from those with tidegate/fastify: both declare `config.rateLimit` of a route.

import rateLimit from '@fastify/rate-limit';
import Fastify from 'fastify';
import { Limiter } from 'tidegate';
import { TidegateStore } from 'tidegate/fastify-rate-limit';

const app = Fastify();
await app.register(rateLimit, { max: 5, store: TidegateStore({ limiter: new Limiter(), prefix: 'mine:' }) });
