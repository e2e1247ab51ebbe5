// The names of handlers and controllers of Nest, under which a notation at them counts.

import type { Type } from '@nestjs/common';
import type { NestRequest } from './nest-call.js';

type Target = Type | ((...args: never[]) => unknown);

/** The keys under which Nest's decorators remember what they say. */
const [PATH, HOST, VERSION, PATTERN, MESSAGE] = ['path', 'host', '__version__', 'microservices:pattern', 'message'];

function metadata(name: string, target: Target): unknown {
  return Reflect.getMetadata(name, target);
}

function text(value: unknown): string {
  if (value === undefined || value === null || value === '' || value === '/') return '';
  if (Array.isArray(value)) return value.map(text).join(',');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function isSingle(value: unknown): boolean {
  return !Array.isArray(value) || value.length < 2;
}

/** A controller: its class and what its decorator says. */
export function controllerPlace(controller: Type): string {
  const parts = [metadata(VERSION, controller), metadata(HOST, controller), metadata(PATH, controller)];
  return [...parts.map(text), controller.name].filter((part) => part !== '').join(' ');
}

/** A handler: the pattern of its route, or its message, and its name. */
export function handlerPlace(controller: Type, handler: Target): string | ((request: NestRequest) => string) {
  const message = metadata(PATTERN, handler) ?? metadata(MESSAGE, handler);
  const [outer, inner] = [metadata(PATH, controller), metadata(PATH, handler)];
  if (message !== undefined) return `${controller.name}.${handler.name} ${text(message)}`;
  if (inner === undefined) return `${controller.name}.${handler.name}`;
  const version = metadata(VERSION, handler) ?? metadata(VERSION, controller);
  const declared = [
    text(version),
    text(metadata(HOST, controller)),
    `/${text(outer)}/${text(inner)}`.replaceAll(/\/+/g, '/'),
  ];
  const place = `${declared.filter((part) => part !== '').join(' ')}.${handler.name}`;
  // Of several routes of one handler no single one is its place.
  if (![outer, inner, version].every(isSingle)) return place;
  return (request) => {
    const { routeOptions, route } = request as { routeOptions?: { url?: string }; route?: { path?: unknown } };
    const pattern = routeOptions?.url ?? route?.path;
    return typeof pattern === 'string' ? `${pattern}.${handler.name}` : place;
  };
}
