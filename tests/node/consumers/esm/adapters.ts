// Every adapter, as an ESM project uses it.

import 'reflect-metadata';

import * as assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer } from '@modelcontextprotocol/server';
import { Controller, Get, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ThrottlerModule } from '@nestjs/throttler';
import { initTRPC } from '@trpc/server';
import { type Job, type Processor, Queue, Worker } from 'bullmq';
import express, { type Request } from 'express';
import { rateLimit as expressRateLimit } from 'express-rate-limit';
import Fastify from 'fastify';
import { Hono } from 'hono';
import Koa from 'koa';
import { type Decision, Limiter } from 'tidegate';
import { type LimitedOptions, limited } from 'tidegate/bullmq';
import { clientIp, header, type RateLimitOptions, rateLimit } from 'tidegate/express';
import { TidegateStore } from 'tidegate/express-rate-limit';
import fastifyLimit, {
  type RateLimitOptions as FastifyOptions,
  type FastifyRateLimitOptions,
  rateLimit as named,
} from 'tidegate/fastify';
import { TidegateStore as FastifyStore } from 'tidegate/fastify-rate-limit';
import { type OutgoingRequest, type PacedFetchOptions, pacedFetch } from 'tidegate/fetch';
import * as hono from 'tidegate/hono';
import * as http from 'tidegate/http';
import * as koa from 'tidegate/koa';
import { anthropicPreset, openaiPreset } from 'tidegate/llm';
import * as mcp from 'tidegate/mcp';
import {
  type RateLimitOptions as NestOptions,
  RateLimit,
  RateLimitException,
  RateLimitGuard,
  RateLimitModule,
  SkipRateLimit,
} from 'tidegate/nest';
import { TidegateStorage } from 'tidegate/nestjs-throttler';
import { meterLimiter, traced } from 'tidegate/opentelemetry';
import { type Observation, observations, type SettleReader } from 'tidegate/outgoing';
import { collectMetrics } from 'tidegate/prometheus';
import { type KeyValueStore, NotApplied } from 'tidegate/stores';
import { errorFormatter, limited as limitedProcedure } from 'tidegate/trpc';
import { paced } from 'tidegate/undici';
import * as web from 'tidegate/web';
import { Agent, request as call } from 'undici';

export const OWN_STORE: KeyValueStore = {
  read: async (keys) => ({ now: null, values: keys.map(() => null) }),
  compareAndSwap: () => Promise.reject(new NotApplied('busy')),
  allOrNone: undefined,
};

/** An undefined option is as if it were not given, also for a project with `exactOptionalPropertyTypes`. */
export const UNDEFINED = {
  address: clientIp({ trustedProxies: undefined, ipv6Prefix: undefined }),
  route: { policy: undefined, key: undefined, cost: undefined, limiter: undefined } satisfies Parameters<
    typeof RateLimit
  >[0],
  entry: { policy: '5/minute', key: undefined, cost: undefined } satisfies RateLimitOptions['policy'],
  metrics: { register: undefined, name: undefined } satisfies Parameters<typeof collectMetrics>[1],
};

const limiter = new Limiter({ policies: { api: '100/minute' } });
collectMetrics(limiter, { name: 'esm' });
const said: Observation[] = observations(new Headers({ 'Retry-After': '7' }), { status: 503 });
assert.equal(said[0]?.retryAfterMs, 7_000);
meterLimiter(traced(limiter), { name: 'esm' });

/** The `RateLimit` field of a response. */
async function rateLimitOf(url: string): Promise<string | null> {
  return (await fetch(url)).headers.get('ratelimit');
}

{
  const app = express();
  app.use(
    rateLimit({
      limiter,
      policy: [{ policy: 'api', key: clientIp({ trustedProxies: ['loopback'] }) }, '5/s'],
      key: (request: Request) => request.get('x-tenant') ?? 'none',
      cost: (request) => (request.method === 'POST' ? 2 : 1),
      refundWhen: (_request, response) => response.statusCode === 304,
      onDenied: (_request, decision, response) => response.json({ wait: decision.retryAfterMs }),
      headers: 'both',
    }),
  );
  app.use('/old', expressRateLimit({ windowMs: 60_000, limit: 5, store: new TidegateStore({ limiter }) }));
  app.get('/', (request, response) => {
    const decision: Decision | undefined = request.rateLimit;
    response.json(decision?.remaining);
  });
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  assert.match((await rateLimitOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)) ?? '', /"api";r=99/);
  server.close();
  // @ts-expect-error the policy is missing
  assert.throws(() => rateLimit({ limiter }));
  // @ts-expect-error there is no such choice of fields
  assert.throws(() => rateLimit({ limiter, policy: 'api', headers: 'all', key: header('x-api-key') }));
}

{
  const app = Fastify();
  const options: FastifyRateLimitOptions = { limiter, policy: 'api', key: () => 'fastify' };
  assert.equal(fastifyLimit, named);
  await app.register(fastifyLimit, options);
  app.get('/', { config: { rateLimit: { policy: '5/minute', cost: 2 } } }, async (request) => {
    const decision: Decision | null = request.rateLimit;
    return decision?.remaining;
  });
  app.get('/free', { config: { rateLimit: false } }, async () => 'free');
  assert.equal((await app.inject('/')).body, '3');
  await app.close();
}

{
  const app = new Hono();
  app.use(hono.rateLimit({ limiter, policy: 'api', key: (context) => context.req.path }));
  app.get('/', (context) => context.text(`${context.get('rateLimit')?.remaining}`));
  assert.equal(await (await app.request('/')).text(), '99');
}

{
  const app = new Koa();
  app.use(koa.rateLimit({ limiter, policy: 'api', key: (context) => context.path }));
  assert.equal(typeof app.callback(), 'function');
}

{
  const limit = web.rateLimit({ limiter, policy: 'api', key: ({ url }) => url });
  class Special extends Request {}
  const GET: (request: Special, context: { params: Promise<{ id: string }> }) => Promise<Response> = limit(
    async (request, { params }) => new Response(`${(await params).id}: ${request.rateLimit?.remaining}`),
  );
  const params = Promise.resolve({ id: '7' });
  assert.equal(await (await GET(new Special('http://localhost/7'), { params })).text(), '7: 99');
  assert.equal((await limit(() => new Response(null, { status: 204 }))(new Request('http://localhost/8'))).status, 204);
  const admission = await limit.check(new Request('http://localhost/9'), { address: undefined });
  const answer: Response = admission.refused ? admission.response : admission.respond(new Response('hello'));
  assert.equal(answer.headers.get('x-ratelimit-remaining'), '99');
}

{
  const t = initTRPC.context<{ user: string }>().create({ errorFormatter });
  const router = t.router({
    length: t.procedure
      .input((given: unknown) => given as { rows: number })
      .use(limitedProcedure({ limiter, policy: 'api', key: ({ ctx }) => ctx.user, cost: ({ input }) => input.rows }))
      .query(({ ctx, input }) => ctx.user.length + input.rows),
  });
  assert.equal(await t.createCallerFactory(router)({ user: 'trpc' }).length({ rows: 3 }), 7);
  // @ts-expect-error the policy is missing
  assert.throws(() => limitedProcedure({ limiter }));
}

{
  const info = { name: 'tools', version: '1.0.0' };
  const options: mcp.LimitedOptions = {
    limiter,
    policy: 'api',
    key: ({ client, session }) => client ?? session ?? 'none',
    tools: {
      export: { policy: '9 rows/s', cost: ({ args }) => ({ rows: Number(args['rows']) }) },
      slow: 'concurrency 1',
      help: false,
    },
  };
  const server: McpServer = mcp.limited(new McpServer(info), options);
  const older: McpServer1 = mcp.limited(new McpServer1(info), { limiter, policy: 'api', tools: undefined });
  assert.ok(server.server !== undefined && older.server !== undefined);
}

{
  class Cats {
    all(): string {
      return 'cats';
    }
    one(): string {
      return 'cat';
    }
  }
  Controller('cats')(Cats);
  const decorate = (name: 'all' | 'one', ...decorators: MethodDecorator[]): void => {
    const descriptor = Object.getOwnPropertyDescriptor(Cats.prototype, name);
    assert.ok(descriptor);
    for (const decorator of decorators) decorator(Cats.prototype, name, descriptor);
  };
  decorate('all', Get(), RateLimit('5/minute'));
  decorate('one', Get('one'), SkipRateLimit());
  class App {}
  Module({ controllers: [Cats], imports: [RateLimitModule.forRoot({ limiter, policy: 'api' })] })(App);
  const app = await NestFactory.create(App, { logger: false });
  app.useGlobalGuards(new RateLimitGuard({ limiter }));
  await app.listen(0, '127.0.0.1');
  assert.match((await rateLimitOf(`${await app.getUrl()}/cats`)) ?? '', /r=4/);
  assert.equal(await rateLimitOf(`${await app.getUrl()}/cats/one`), null);
  await app.close();
  assert.equal(typeof RateLimitException, 'function');
}

// A function of one argument gets the response, with its type. Every option may be undefined.
{
  const express: RateLimitOptions = {
    limiter,
    policy: (request) => (request.get('x-plan') === 'none' ? undefined : ['api', { policy: '5/s', cost: 2 }]),
    refundWhen: (response) => response.statusCode === 304,
    settle: (_request, response) => (response.headersSent ? { api: 2 } : undefined),
    holdUntil: 'response',
    meta: (request) => request.get('x-user'),
    cost: undefined,
    enabled: undefined,
    perMethod: true,
    application: 'api',
    onDenied: 'throw',
  };
  const onFastify: FastifyOptions = { limiter, default: '5/minute', refundWhen: (reply) => reply.statusCode === 304 };
  const onKoa: koa.RateLimitOptions = { limiter, policy: 'api', refundWhen: (response) => response.status === 304 };
  const onHono: hono.RateLimitOptions = { limiter, policy: 'api', refundWhen: (response) => response.status === 304 };
  const onNest: NestOptions = { limiter, policy: ['api', '5/s'], refundWhen: (response) => response.raw !== undefined };
  const onWeb: web.RateLimitOptions = { limiter, policy: 'api', refundWhen: (response) => response.status === 304 };
  assert.equal([express, onFastify, onKoa, onHono, onNest, onWeb].length, 6);
  // @ts-expect-error there is no such option
  const mistyped: RateLimitOptions = { limiter, policy: 'api', polcy: 'api' };
  assert.throws(() => rateLimit(mistyped));
  assert.equal(fastifyLimit.default, fastifyLimit);
  RateLimitModule.forRootAsync({ useFactory: async (): Promise<NestOptions> => onNest });
  SkipRateLimit('5/s');
}

{
  assert.equal(typeof FastifyStore({ limiter }), 'function');
  ThrottlerModule.forRoot({ throttlers: [{ ttl: 1000, limit: 5 }], storage: new TidegateStorage({ limiter }) });
  const decision = await limiter.check('api', 'alice');
  const answer: Response = http.withFields(new Response('hello'), decision);
  assert.equal(answer.headers.get('x-ratelimit-limit'), '100');
  assert.match(http.problem(decision), /quota-exceeded/);
}

{
  interface Mail {
    user: string;
  }
  const options: LimitedOptions<Job<Mail, number>> = { limiter, policy: 'api', key: (job) => job.data.user };
  const send: Processor<Mail, number> = limited(options, async (job, token) => job.data.user.length + Number(token));
  const connection = { host: '127.0.0.1', port: 1 };
  assert.equal(typeof send, 'function');
  // This is not called, because there is no server here.
  const start = (): unknown[] => [
    new Queue<Mail, number>('mail', { connection }),
    new Worker<Mail, number>(
      'mail',
      limited({ limiter, policy: '20/s', key: (job) => job.data.user }, async () => 1),
    ),
    new Worker(
      'mail',
      limited({ limiter, policy: '20/s', key: (job) => job.data.user }, async (job) => job.data),
      { connection },
    ),
  ];
  assert.equal(typeof start, 'function');
  // @ts-expect-error the policy is missing
  assert.throws(() => limited({ limiter }, async () => 1));
}

{
  const server = createServer((_request, response) => response.setHeader('x-cost', '3').end('hello')).listen(
    0,
    '127.0.0.1',
  );
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const reader: SettleReader = { feed: (chunk) => void chunk.byteLength, end: () => 2 };
  const options: PacedFetchOptions = {
    limiter,
    policy: ({ url }) => (url.startsWith('https:') ? undefined : 'api'),
    key: (asked: OutgoingRequest) => asked.headers.get('x-tenant') ?? 'none',
    cost: ({ body, method }) => (method === 'POST' && typeof body === 'string' ? { cost: body.length } : 1),
    settle: (response, asked) => (asked.method === 'GET' ? Number(response.headers.get('x-cost')) : reader),
    onWait: (decision: Decision, waitMs: number) => console.log(decision.policy, waitMs),
    timeoutMs: Number.POSITIVE_INFINITY,
    fetch,
  };
  const pacedCall: typeof fetch = pacedFetch(options);
  assert.equal(await (await pacedCall(new URL(url), { method: 'POST', body: 'text' })).text(), 'hello');
  const agent = new Agent();
  const dispatcher = agent.compose(paced({ limiter, policy: 'api', settle: () => undefined, respond: true }));
  assert.equal(await (await call(url, { dispatcher })).body.text(), 'hello');
  await agent.close();
  server.close();
  const preset = openaiPreset({
    tokenizer: (text) => [...text],
    priority: ({ url }) => (url === '' ? 'batch' : undefined),
  });
  assert.equal(typeof pacedFetch({ limiter, policy: 'api', ...preset }), 'function');
  assert.equal(typeof paced({ limiter, policy: '9 tokens/s', ...anthropicPreset({ units: ['tokens'] }) }), 'function');
  // @ts-expect-error there is no such unit
  assert.throws(() => openaiPreset({ units: ['words'] }));
  // @ts-expect-error undici has a fetch of its own
  assert.throws(() => paced({ limiter, policy: 'api', fetch }));
  // @ts-expect-error a settle function returns no text
  assert.equal(typeof pacedFetch({ limiter, policy: 'api', settle: () => 'many' }), 'function');
}

await limiter.close();
console.log('esm adapters');
