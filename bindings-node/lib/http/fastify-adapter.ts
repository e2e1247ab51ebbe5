// How requests of Fastify are read.

import type { FastifyRequest } from 'fastify';
import { fastifyTrust } from './proxy-trust.js';
import { nodeRequestAdapter, type RequestAdapter } from './request-adapter.js';

export const fastifyAdapter: RequestAdapter<FastifyRequest> = nodeRequestAdapter<FastifyRequest>('tidegate/fastify', {
  trusts: fastifyTrust,
  seesHandlers: true,
});
