// Nest 12 asks a global guard about all gateways, and older versions about none. This file also watches the registration of
// gateways in Nest 11, which is not public. Without that, a guard made by hand would silently limit no message.

import { createRequire } from 'node:module';
import type { Type } from '@nestjs/common';
import { type ApplicationConfig, DiscoveryService, MetadataScanner, type NestContainer } from '@nestjs/core';

/** Loads packages of Nest that not every application has. */
export const load = createRequire(__filename);

// biome-ignore lint/suspicious/noExplicitAny: a package has no types here
function loadIfThere(name: string): any {
  try {
    return load(name);
  } catch {
    return undefined;
  }
}

/** True if Nest asks global guards about the messages of gateways. A bundle has no packages, and is taken for the newest version. */
const GUARDS_GATEWAYS = Number.parseInt(loadIfThere('@nestjs/core/package.json')?.version ?? '12', 10) >= 12;

/** The metadata keys of gateways and of their messages. */
const [GATEWAY, MESSAGE] = ['websockets:is_gateway', 'message'];

/** A method that serves requests or messages. */
export type Handler = (...args: never[]) => unknown;

/** Returns the methods of a class and of those that it extends. A function that makes a provider has none. */
export function methodsOf({ prototype }: Type): [name: string, method: Handler][] {
  return new MetadataScanner().getAllMethodNames(prototype).map((name) => [name, prototype[name]]);
}

/** Returns the messages of a gateway, if Nest asks no global guard about them, with the methods that answer them. */
export function unaskedMessages(gateway: Type): [name: string, method: Handler][] {
  if (GUARDS_GATEWAYS || Reflect.getMetadata(GATEWAY, gateway) !== true) return [];
  return methodsOf(gateway).filter(([, method]) => Reflect.getMetadata(MESSAGE, method) !== undefined);
}

/** Calls a function with each provider of an application of Nest 11 with gateways, and with each of its global guards. */
export function watchGateways(seen: (provider: Type, guard: unknown) => void): void {
  if (GUARDS_GATEWAYS) return;
  const prototype = loadIfThere('@nestjs/websockets/socket-module')?.SocketModule.prototype;
  if (prototype === undefined) return;
  const { register } = prototype;
  prototype.register = function (container: NestContainer, config: ApplicationConfig, ...rest: unknown[]) {
    for (const { metatype } of new DiscoveryService(container.getModules()).getProviders()) {
      if (typeof metatype === 'function') for (const guard of config.getGlobalGuards()) seen(metatype as Type, guard);
    }
    return register.call(this, container, config, ...rest);
  };
}
