// The documentation of limited handlers by @nestjs/swagger.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import 'reflect-metadata';
import { Controller, Get, HttpCode, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ApiOkResponse, ApiTooManyRequestsResponse, DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { Limiter, Policy } from 'tidegate';
import * as nest from 'tidegate/nest';

const limiter = new Limiter({ policies: { api: '100/minute', trial: new Policy('5/minute', { shadow: true }) } });

function decorate(target, name, ...decorators) {
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, name);
  for (const decorator of decorators) decorator(target.prototype, name, descriptor);
}

/** A controller with these handlers, each with its decorators. */
function controllerOf(handlers, ...onClass) {
  class Things {}
  for (const [name, decorators] of Object.entries(handlers)) {
    Things.prototype[name] = { [name]() {} }[name];
    decorate(Things, name, ...decorators);
  }
  for (const decorator of onClass) decorator(Things);
  Controller()(Things);
  return Things;
}

async function documentOf(t, controller, { imports = [], guard } = {}) {
  class Application {}
  Module({ controllers: [controller], imports })(Application);
  const app = await NestFactory.create(Application, { logger: false, abortOnError: false });
  t.after(() => app.close());
  if (guard !== undefined) {
    app.useGlobalGuards(guard);
    guard.documentRoutes(app);
  }
  return SwaggerModule.createDocument(app, new DocumentBuilder().build());
}

const withPolicy = (policy, more = {}) => [nest.RateLimitModule.forRoot({ limiter, policy, ...more })];
const [IETF, OLD] = [
  ['RateLimit', 'RateLimit-Policy'],
  ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'],
];

describe('the document of Nest', () => {
  test('lists 429 for limited handlers, beside the response that they have', async (t) => {
    const things = controllerOf({
      list: [Get()],
      add: [Post()],
      change: [HttpCode(202), Post('change')],
      named: [Get('named'), ApiOkResponse({ description: 'all of them' })],
      free: [Get('free'), nest.SkipRateLimit()],
      shadowed: [Get('shadowed'), nest.RateLimit('trial')],
      reading: [Get('reading'), nest.RateLimit({ methods: ['POST'] })],
    });
    const { paths } = await documentOf(t, things, { imports: withPolicy('api') });
    const codes = (operation) => Object.keys(operation.responses);
    assert.deepEqual(codes(paths['/'].get), ['200', '429']);
    assert.deepEqual(codes(paths['/'].post), ['201', '429']);
    assert.deepEqual(codes(paths['/change'].post), ['202', '429']);
    assert.deepEqual(codes(paths['/named'].get), ['200', '429']);
    assert.equal(paths['/named'].get.responses[200].description, 'all of them');
    for (const path of ['/free', '/shadowed', '/reading']) assert.deepEqual(codes(paths[path].get), ['200'], path);
    const { description, headers, content } = paths['/'].get.responses[429];
    assert.equal(description, 'Too Many Requests');
    assert.deepEqual(Object.keys(headers).sort(), [...IETF, 'Retry-After', ...OLD].sort());
    const { schema } = content['application/problem+json'];
    assert.deepEqual(Object.keys(schema.properties).sort(), ['detail', 'status', 'title', 'type', 'violated-policies']);
  });

  test('has the fields that the option chooses, and leaves the answer of onDenied to the application', async (t) => {
    const things = controllerOf({ list: [Get()], own: [Get('own'), nest.RateLimit({ onDenied: () => undefined })] });
    const { paths } = await documentOf(t, things, { imports: withPolicy('api', { headers: 'ietf' }) });
    assert.deepEqual(Object.keys(paths['/'].get.responses[429].headers).sort(), [...IETF, 'Retry-After'].sort());
    assert.equal(paths['/own'].get.responses[429].content, undefined);
  });

  test('keeps what the application says of its refusals', async (t) => {
    const own = ApiTooManyRequestsResponse({ description: 'slow down' });
    const { paths } = await documentOf(t, controllerOf({ list: [Get(), own] }), { imports: withPolicy('api') });
    assert.deepEqual(paths['/'].get.responses[429], { description: 'slow down' });
    const all = await documentOf(t, controllerOf({ list: [Get()] }, own), { imports: withPolicy('api') });
    assert.deepEqual(all.paths['/'].get.responses[429], { description: 'slow down' });
  });

  test('knows the routes of a global guard that is asked to document them', async (t) => {
    const guard = new nest.RateLimitGuard({ limiter });
    const things = controllerOf({ list: [Get()], limited: [Get('limited'), nest.RateLimit('5/minute')] });
    const { paths } = await documentOf(t, things, { guard });
    assert.deepEqual(Object.keys(paths['/'].get.responses), ['200']);
    assert.deepEqual(Object.keys(paths['/limited'].get.responses), ['200', '429']);
  });

  test("keeps what Nest's compiler plugin has read of types", async (t) => {
    const things = controllerOf({ list: [Get()], add: [Post()] });
    things._OPENAPI_METADATA_FACTORY = () => ({ list: { type: String }, add: { summary: 'adds' } });
    const { paths } = await documentOf(t, things, { imports: withPolicy('api') });
    const { 200: list, 429: refused } = paths['/'].get.responses;
    assert.deepEqual(list.content, { 'application/json': { schema: { type: 'string' } } });
    assert.equal(refused.description, 'Too Many Requests');
    assert.deepEqual(Object.keys(paths['/'].post.responses), ['201', '429']);
  });

  test('is as it was without limits', async (t) => {
    const { paths } = await documentOf(t, controllerOf({ list: [Get()] }), {
      imports: withPolicy('api', { enabled: false }),
    });
    assert.deepEqual(Object.keys(paths['/'].get.responses), ['200']);
  });
});
