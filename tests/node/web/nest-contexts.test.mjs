// Nest beyond HTTP requests: microservices over TCP, websocket gateways and GraphQL, with real clients. Also its module.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import process from 'node:process';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import 'reflect-metadata';
import { Catch, Controller, Get, Module, UseGuards } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { GraphQLModule, Mutation, Query, Resolver } from '@nestjs/graphql';
import { MercuriusDriver } from '@nestjs/mercurius';
import { ClientProxyFactory, MessagePattern, RpcException, Transport } from '@nestjs/microservices';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { WsAdapter } from '@nestjs/platform-ws';
import { SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { firstValueFrom, throwError } from 'rxjs';
import { Limiter, ManualClock } from 'tidegate';
import { placedKey } from 'tidegate/http';
import * as nest from 'tidegate/nest';
import { WebSocket } from 'ws';
import { get } from './client.mjs';

const policies = { all: 'fixed-window 2/minute', burst: 'fixed-window 1/minute', long: 'fixed-window 3/minute' };
const limiting = () => new Limiter({ policies, clock: new ManualClock(1_704_067_200_000) });

function decorate(target, name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, name);
  for (const decorator of decorators) decorator(target.prototype, name, descriptor);
}

function moduleOf(metadata) {
  class Application {}
  Module(metadata)(Application);
  return Application;
}

async function listeningNest(t, metadata, adapter, prepare = () => {}) {
  const application = moduleOf(metadata);
  const options = { logger: false, abortOnError: false, forceCloseConnections: true };
  const app = await (adapter
    ? NestFactory.create(application, adapter, options)
    : NestFactory.create(application, options));
  t.after(() => app.close());
  app.useWebSocketAdapter(new WsAdapter(app));
  prepare(app);
  await app.listen(0, '127.0.0.1');
  return { app, port: app.getHttpServer().address().port };
}

describe('a microservice over TCP', () => {
  class Maths {
    sum(numbers) {
      return numbers.reduce((a, b) => a + b, 0);
    }
    free() {
      return 'free';
    }
    here() {
      return 'here';
    }
  }
  Controller()(Maths);
  decorate(Maths, 'sum', MessagePattern('sum'));
  decorate(Maths, 'free', MessagePattern('free'), nest.SkipRateLimit());
  decorate(Maths, 'here', MessagePattern({ cmd: 'here' }), nest.RateLimit('fixed-window 1/minute'));

  async function client(t, options, filters = []) {
    const service = await NestFactory.createMicroservice(
      moduleOf({ controllers: [Maths], imports: [nest.RateLimitModule.forRoot(options)] }),
      { transport: Transport.TCP, options: { host: '127.0.0.1', port: 0 }, logger: false },
    );
    t.after(() => service.close());
    service.useGlobalFilters(...filters);
    await service.listen();
    const { port } = service.serverInstance.server.address();
    const proxy = ClientProxyFactory.create({ transport: Transport.TCP, options: { host: '127.0.0.1', port } });
    t.after(() => proxy.close());
    return async (pattern, data) => {
      try {
        return await firstValueFrom(proxy.send(pattern, data));
      } catch (error) {
        return error;
      }
    };
  }

  test('is limited by the address of its client, and told why', async (t) => {
    const limiter = limiting();
    const send = await client(t, { limiter, policy: 'all' });
    assert.equal(await send('sum', [1, 2]), 3);
    assert.equal((await limiter.peek('all', '127.0.0.1')).remaining, 1);
    await send('sum', [1]);
    const refused = await send('sum', [1]);
    assert.equal(refused.status, 429);
    assert.equal(refused.retryAfterMs, 60_000);
    assert.deepEqual(refused['violated-policies'], ['all']);
    assert.equal(await send('free', {}), 'free');
    assert.equal(await send({ cmd: 'here' }, {}), 'here');
    assert.equal((await send({ cmd: 'here' }, {})).status, 429);
    assert.equal(await limiter.peek('all', '127.0.0.1').then(({ remaining }) => remaining), 0);
  });

  test('a key comes from the message, and onDenied says how a client is told', async (t) => {
    const limiter = limiting();
    const key = (message) => message.data.tenant;
    const onDenied = (message, decision) => new RpcException({ tenant: message.data.tenant, limit: decision.limit });
    const send = await client(t, { limiter, policy: 'burst', key, onDenied });
    await send('sum', { tenant: 'a' });
    assert.deepEqual(await send('sum', { tenant: 'a' }), { tenant: 'a', limit: 1 });
    assert.equal((await limiter.peek('burst', 'a')).remaining, 0);
    assert.equal((await limiter.peek('burst', 'b')).remaining, 1);
  });

  test('a filter gets the refusal', async (t) => {
    const seen = [];
    class Filter {
      catch(error) {
        seen.push(error);
        return throwError(() => error.getError());
      }
    }
    Catch(RpcException)(Filter);
    const send = await client(t, { limiter: limiting(), policy: 'burst' }, [new Filter()]);
    await send('sum', []);
    await send('sum', []);
    assert.equal(seen[0].decision.policy, 'burst');
  });

  test('what has no end cannot hold units: an error that says the way out', async (t) => {
    const errors = [];
    class Filter {
      catch(error) {
        errors.push(error);
        return throwError(() => 'failed');
      }
    }
    Catch()(Filter);
    const limiter = limiting();
    const send = await client(t, { limiter, policy: 'concurrency 1' }, [new Filter()]);
    for (let times = 0; times < 2; times++) await send('sum', []);
    assert.deepEqual(
      errors.map(({ code }) => code),
      ['config_invalid', 'config_invalid'],
    );
    assert.match(errors[0].message, /limiter\.hold/);
  });
});

test('a websocket gateway is limited message by message', async (t) => {
  const limiter = limiting();
  class Chat {
    say(_client, text) {
      return { event: 'said', data: text };
    }
    free(_client, text) {
      return { event: 'free', data: text };
    }
  }
  WebSocketGateway()(Chat);
  UseGuards(nest.RateLimitGuard)(Chat);
  decorate(Chat, 'say', SubscribeMessage('say'));
  decorate(Chat, 'free', SubscribeMessage('free'), nest.SkipRateLimit());
  const onDenied = (_message, decision, client) => {
    client.send(JSON.stringify({ event: 'denied', data: decision.policy }));
  };
  const imports = [nest.RateLimitModule.forRoot({ limiter, policy: 'all', onDenied })];
  const { port } = await listeningNest(t, { providers: [Chat], imports });
  const socket = new WebSocket(`ws://127.0.0.1:${port}`);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  const send = async (event, data) => {
    socket.send(JSON.stringify({ event, data }));
    const [message] = await once(socket, 'message');
    return JSON.parse(message.toString());
  };
  assert.deepEqual(await send('say', 'one'), { event: 'said', data: 'one' });
  assert.deepEqual(await send('say', 'two'), { event: 'said', data: 'two' });
  assert.deepEqual(await send('say', 'three'), { event: 'denied', data: 'all' });
  assert.deepEqual(await send('free', 'four'), { event: 'free', data: 'four' });
  assert.equal((await limiter.peek('all', '127.0.0.1')).remaining, 0);
});

/** Nest 12 asks global guards about the messages of gateways, Nest 11 does not. */
const guardsGateways = Number.parseInt(createRequire(import.meta.url)('@nestjs/core/package.json').version, 10) >= 12;

/** Starts an application with a gateway. Returns a function that sends messages, and returns how many of them were answered. */
async function chatting(t, metadata, decorators = [], prepare = () => {}) {
  class Chat {
    say(_client, text) {
      return { event: 'said', data: text };
    }
  }
  WebSocketGateway()(Chat);
  for (const decorator of decorators) decorator(Chat);
  decorate(Chat, 'say', SubscribeMessage('say'));
  const { port } = await listeningNest(t, { ...metadata, providers: [Chat] }, undefined, prepare);
  return async (count) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}`);
    t.after(() => socket.terminate());
    await once(socket, 'open');
    for (let sent = 0; sent < count; sent++) {
      socket.send(JSON.stringify({ event: 'say', data: sent }));
      await once(socket, 'message');
    }
  };
}

/** Sends the client a message, so that each message has an answer. */
const onDenied = (_message, _decision, client) => client.send(JSON.stringify({ event: 'denied' }));

test('a gateway of an application with the module', async (t) => {
  const limiter = limiting();
  const start = (...decorators) =>
    chatting(t, { imports: [nest.RateLimitModule.forRoot({ limiter, policy: 'all', onDenied })] }, decorators);
  const left = async () => (await limiter.peek('all', '127.0.0.1')).remaining;
  if (guardsGateways) {
    await (await start())(1);
    assert.equal(await left(), 1);
  } else {
    await assert.rejects(start(), { code: 'config_invalid', message: /gateway Chat.*@UseGuards\(RateLimitGuard\)/ });
  }
  await limiter.clear('all', '127.0.0.1');
  await (await start(nest.SkipRateLimit()))(3);
  assert.equal(await left(), 2);
  // One guard or two: a message counts once.
  await (await start(UseGuards(nest.RateLimitGuard)))(1);
  assert.equal(await left(), 1);
});

test('a gateway of an application with a guard that was made by hand', async (t) => {
  const warnings = [];
  const warned = ({ message }) => warnings.push(message);
  process.on('warning', warned);
  t.after(() => process.off('warning', warned));
  const start = async (ways) => {
    const limiter = limiting();
    const guard = new nest.RateLimitGuard({ limiter, policy: 'all', onDenied });
    const { metadata = {}, decorators = [], prepare } = ways(guard);
    warnings.length = 0;
    await (await chatting(t, metadata, decorators, prepare))(1);
    await setImmediate();
    const ours = warnings.filter((message) => message.includes('gateway Chat'));
    return [(await limiter.peek('all', '127.0.0.1')).remaining, ours.length];
  };
  const global = (guard) => (app) => app.useGlobalGuards(guard);
  const alone = guardsGateways ? [1, 0] : [2, 1];
  assert.deepEqual(await start((guard) => ({ prepare: global(guard) })), alone);
  const providing = (guard) => moduleOf({ providers: [{ provide: APP_GUARD, useFactory: () => guard }] });
  assert.deepEqual(await start((guard) => ({ metadata: { imports: [providing(guard)] } })), alone);
  assert.deepEqual(await start((guard) => ({ prepare: global(guard), decorators: [UseGuards(guard)] })), [1, 0]);
  assert.deepEqual(await start((guard) => ({ prepare: global(guard), decorators: [nest.SkipRateLimit()] })), [2, 0]);
  assert.deepEqual(await start((guard) => ({ decorators: [UseGuards(guard)] })), [1, 0]);
});

test('GraphQL: each field is a call, and the answer says the limits', async (t) => {
  const limiter = limiting();
  class Cats {
    cats() {
      return 'cats';
    }
    free() {
      return 'free';
    }
    add() {
      return 'added';
    }
  }
  Resolver()(Cats);
  decorate(Cats, 'cats', Query('cats'));
  decorate(Cats, 'free', Query('free'), nest.SkipRateLimit());
  decorate(Cats, 'add', Mutation('add'), nest.RateLimit('fixed-window 1/minute'));
  const graphql = GraphQLModule.forRoot({
    driver: MercuriusDriver,
    typeDefs: 'type Query { cats: String free: String } type Mutation { add: String }',
    context: (request, reply) => ({ req: request, res: reply }),
  });
  const imports = [graphql, nest.RateLimitModule.forRoot({ limiter, policy: 'all' })];
  const { port } = await listeningNest(t, { providers: [Cats], imports }, new FastifyAdapter());
  const send = async (query) => {
    const answer = await fetch(`http://127.0.0.1:${port}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    });
    return { headers: answer.headers, ...(await answer.json()) };
  };
  const first = await send('{ cats }');
  assert.deepEqual(first.data, { cats: 'cats' });
  assert.equal(first.headers.get('ratelimit'), '"all";r=1;t=60');
  // Two fields of one request are two calls: aliases are no way around a limit.
  const second = await send('{ a: cats b: cats free }');
  assert.equal(second.data.free, 'free');
  assert.equal([second.data.a, second.data.b].filter((value) => value === null).length, 1);
  assert.equal(second.errors.length, 1);
  assert.equal((await send('mutation { add }')).data.add, 'added');
  assert.equal((await send('mutation { add }')).data?.add ?? null, null);
  assert.equal((await limiter.peek('all', '127.0.0.1')).remaining, 0);
});

describe('the module', () => {
  class Cats {
    index() {
      return 'cats';
    }
    slow() {
      return 'slow';
    }
  }
  Controller()(Cats);
  decorate(Cats, 'index', Get());
  decorate(Cats, 'slow', Get('slow'), nest.SkipRateLimit('burst'));

  const ways = {
    useFactory: (limiter) => ({
      useFactory: async (given) => ({ limiter: given, policy: ['burst', 'long'] }),
      inject: ['LIMITER'],
      imports: [{ module: moduleOf({}), providers: [{ provide: 'LIMITER', useValue: limiter }], exports: ['LIMITER'] }],
    }),
    useClass: (limiter) => {
      class Options {
        createRateLimitOptions() {
          return { limiter, policy: ['burst', 'long'] };
        }
      }
      return { useClass: Options };
    },
  };
  for (const [name, way] of Object.entries(ways)) {
    test(`forRootAsync with ${name}, and several named limits of which one is skipped`, async (t) => {
      const imports = [nest.RateLimitModule.forRootAsync(way(limiting()))];
      const { port } = await listeningNest(t, { controllers: [Cats], imports });
      const statuses = [];
      for (const path of ['/', '/', '/slow', '/slow', '/slow']) {
        statuses.push((await get(`http://127.0.0.1:${port}${path}`)).status);
      }
      assert.deepEqual(statuses, [200, 429, 200, 200, 429]);
    });
  }

  test('what is wrong in a decorator is an error at start', async () => {
    const start = async (...decorators) => {
      class Wrong {
        index() {}
      }
      Controller()(Wrong);
      decorate(Wrong, 'index', Get(), ...decorators);
      const imports = [nest.RateLimitModule.forRoot({ limiter: limiting(), policy: ['burst', 'long'] })];
      const app = await NestFactory.create(moduleOf({ controllers: [Wrong], imports }), {
        logger: false,
        abortOnError: false,
      });
      try {
        await app.init();
      } finally {
        await app.close();
      }
    };
    await assert.rejects(start(nest.RateLimit('logn')), { code: 'policy_unknown' });
    await assert.rejects(start(nest.SkipRateLimit('brst')), { message: /did you mean burst\?/ });
    assert.throws(() => nest.RateLimit({ polcy: 'burst' }), { message: /did you mean policy\?/ });
    assert.throws(() => nest.RateLimit(null), { code: 'config_invalid' });
    assert.throws(() => nest.RateLimit(), { code: 'config_invalid' });
    assert.throws(() => nest.RateLimit(true), { code: 'config_invalid' });
    assert.throws(() => nest.RateLimitModule.forRoot({ limiter: limiting(), polcy: 'all' }), {
      code: 'config_invalid',
    });
    assert.throws(() => nest.RateLimitModule.forRootAsync({ usefactory: () => ({}) }), {
      message: /did you mean useFactory\?/,
    });
    assert.throws(() => nest.RateLimitModule.forRootAsync({}), { code: 'config_invalid' });
  });

  test('a second guard of the same limits is an error at start', async (t) => {
    const start = async ({ limits = { policy: 'all' }, more = [], providers = [], onClass = [], onMethod = [] }) => {
      class Things {
        index() {
          return 'hello';
        }
      }
      Controller()(Things);
      for (const decorator of onClass) decorator(Things);
      decorate(Things, 'index', Get(), ...onMethod);
      const limiter = limiting();
      const imports = [limits, ...more].map((given) => nest.RateLimitModule.forRoot({ limiter, ...given }));
      const { port } = await listeningNest(t, { controllers: [Things], providers, imports });
      return (await get(`http://127.0.0.1:${port}/`)).status;
    };
    const again = UseGuards(nest.RateLimitGuard);
    const twice = { code: 'config_invalid', message: /two RateLimitModules limit each request by "all"/ };
    await assert.rejects(start({ more: [{ policy: 'all' }] }), twice);
    await assert.rejects(start({ more: [{ policy: ['burst', 'all'] }] }), twice);
    assert.equal(await start({ more: [{ policy: 'burst' }] }), 200);
    const guarded = { code: 'config_invalid', message: /Things\.index once more: remove @UseGuards\(RateLimitGuard\)/ };
    await assert.rejects(start({ onClass: [again] }), guarded);
    await assert.rejects(start({ onMethod: [again] }), guarded);
    await assert.rejects(start({ limits: {}, onMethod: [again, nest.RateLimit('burst')] }), guarded);
    const providers = [{ provide: APP_GUARD, useClass: nest.RateLimitGuard }];
    await assert.rejects(start({ providers }), { code: 'config_invalid', message: /remove APP_GUARD/ });
    // Other limits, and no limits, are counted once.
    assert.equal(await start({}), 200);
    const other = UseGuards(new nest.RateLimitGuard({ limiter: limiting(), policy: 'burst' }));
    assert.equal(await start({ onClass: [other] }), 200);
    assert.equal(await start({ limits: {}, onClass: [again] }), 200);
  });

  test('a handler that two controllers inherit counts for each, and so do two controllers of one name', async (t) => {
    class Base {
      index() {
        return 'hello';
      }
    }
    decorate(Base, 'index', Get(), nest.RateLimit('fixed-window 1/minute'));
    const controllers = ['a', 'b'].map((path) => {
      class Things extends Base {}
      Controller(path)(Things);
      return Things;
    });
    const whole = ['c', 'd'].map((path) => {
      class Things {
        index() {
          return 'hello';
        }
      }
      Controller(path)(Things);
      nest.RateLimit('fixed-window 1/minute')(Things);
      decorate(Things, 'index', Get());
      return Things;
    });
    const limiter = limiting();
    const imports = [nest.RateLimitModule.forRoot({ limiter })];
    const { port } = await listeningNest(t, { controllers: [...controllers, ...whole], imports });
    for (const path of ['a', 'b', 'c', 'd']) {
      const statuses = [];
      for (let times = 0; times < 2; times++) statuses.push((await get(`http://127.0.0.1:${port}/${path}`)).status);
      assert.deepEqual(statuses, [200, 429], path);
    }
    assert.equal((await limiter.peek('fixed-window 1/minute', '/a.index 127.0.0.1')).remaining, 0);
    assert.equal((await limiter.peek('fixed-window 1/minute', placedKey('c Things', '127.0.0.1'))).remaining, 0);
  });
});
