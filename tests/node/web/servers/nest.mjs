import 'reflect-metadata';
import { pipeline } from 'node:stream';
import { All, Catch, Controller, Module, Req, Res } from '@nestjs/common';
import { BaseExceptionFilter, HttpAdapterHost, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import * as adapter from 'tidegate/nest';
import { listening } from './listening.mjs';

const start =
  (platform, wildcard) =>
  async ({ limits, routes = [], limiter, twice, trust, handler, failed }) => {
    class Everything {
      async handle(request, response) {
        const call = { method: request.method, url: request.url, decision: request.rateLimit };
        const { status = 200, body } = await handler(call);
        response.status(status);
        if (typeof body === 'string' || response.raw !== undefined) response.send(body);
        else pipeline(body, response, () => {});
      }
    }
    Controller()(Everything);
    All(wildcard)(Everything.prototype, 'handle', Object.getOwnPropertyDescriptor(Everything.prototype, 'handle'));
    Req()(Everything.prototype, 'handle', 0);
    Res()(Everything.prototype, 'handle', 1);
    // Classes of one name, as two modules may have them.
    const controllers = routes.map(([path, options]) => {
      class Limited extends Everything {}
      Limited.prototype.handle = function handle(request, response) {
        return Everything.prototype.handle.call(this, request, response);
      };
      const descriptor = Object.getOwnPropertyDescriptor(Limited.prototype, 'handle');
      Controller()(Limited);
      All(path)(Limited.prototype, 'handle', descriptor);
      adapter.RateLimit(options)(Limited.prototype, 'handle', descriptor);
      Req()(Limited.prototype, 'handle', 0);
      Res()(Limited.prototype, 'handle', 1);
      return Limited;
    });
    class Application {}
    Module({ controllers: [...controllers, Everything] })(Application);
    class FailureFilter extends BaseExceptionFilter {
      catch(error, host) {
        failed?.(error);
        super.catch(error, host);
      }
    }
    Catch()(FailureFilter);

    const app = await NestFactory.create(Application, platform(trust), { logger: false, forceCloseConnections: true });
    if (trust !== undefined) app.getHttpAdapter().getInstance().set?.('trust proxy', trust);
    authenticate(app.getHttpAdapter().getInstance());
    for (const options of routes.length > 0 && limits.length === 0 ? [{ limiter }] : limits) {
      const guard = new adapter.RateLimitGuard(options);
      app.useGlobalGuards(...(twice ? [guard, guard] : [guard]));
    }
    app.useGlobalFilters(new FailureFilter(app.get(HttpAdapterHost).httpAdapter));
    await app.listen(0, '127.0.0.1');
    return { ...(await listening(app.getHttpServer())), close: () => app.close() };
  };

/** Puts a user where the authentication libraries of each platform put it. */
function authenticate(instance) {
  const known = (request) => {
    const { 'x-user': user, 'x-claims': claims } = request.headers;
    if (user !== undefined || claims !== undefined) request.user = JSON.parse(user ?? claims);
  };
  if (instance.addHook !== undefined) return instance.addHook('onRequest', async (request) => known(request));
  return instance.use((request, _response, next) => next(known(request)));
}

const express = () => new ExpressAdapter();
const fastify = (trust) => new FastifyAdapter(trust === undefined ? {} : { trustProxy: trust });

const plainDenials = [(_request, _decision, response) => void response.send({ slow: 'down' })];

export const onNestExpress = {
  name: 'Nest on Express',
  adapter,
  start: start(express, ['/', '*path']),
  trust: true,
  plainDenials,
};
export const onNestFastify = {
  name: 'Nest on Fastify',
  adapter,
  start: start(fastify, '*'),
  trust: true,
  plainDenials,
};
