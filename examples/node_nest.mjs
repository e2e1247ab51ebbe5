// Nest: a guard for all handlers, and decorators that override it. In TypeScript decorators are written with an @; here they are
// called, so that the file runs without a compiler.
//
//     npm install tidegate @nestjs/common @nestjs/core @nestjs/platform-express reflect-metadata rxjs
//     TIDEGATE_STORE=redis://127.0.0.1:6379/0 node node_nest.mjs

import 'reflect-metadata';
import { Controller, Get, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Limiter } from 'tidegate';
import { RateLimit, RateLimitModule, SkipRateLimit } from 'tidegate/nest';

const limiter = new Limiter({
  store: process.env.TIDEGATE_STORE ?? 'memory://',
  policies: { all: '100/minute', login: '20/minute; 5/3s' },
});

class Service {
  index() {
    return 'under the limit for all\n';
  }
  login() {
    return 'welcome\n';
  }
  health() {
    return 'fine\n';
  }
}

/** The same as `@One() @Other() name() {}` in TypeScript. */
function decorate(name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(Service.prototype, name);
  for (const decorator of decorators) decorator(Service.prototype, name, descriptor);
}
Controller()(Service);
decorate('index', Get());
decorate('login', Post('login'), RateLimit('login'));
decorate('health', Get('health'), SkipRateLimit());

class Application {}
Module({ controllers: [Service], imports: [RateLimitModule.forRoot({ limiter, policy: 'all' })] })(Application);

const app = await NestFactory.create(Application, { logger: false });
await app.listen(process.env.PORT ?? 3000, '127.0.0.1');
console.log(`listening on ${await app.getUrl()}`);
