// Nest 12 asks a global guard about all gateways, and older versions about none. This file also watches the registration of
// gateways in Nest 11, which is not public. Without that, a guard made by hand would silently limit no message.

import { createRequire } from 'node:module';
import type { Type } from '@nestjs/common';

/** Loads Nest's packages for messages, which only an application with messages has. */
export const load = createRequire(__filename);

/** True if Nest asks global guards about the messages of gateways. */
export const GUARDS_GATEWAYS = majorOfNest() >= 12;

function majorOfNest(): number {
  try {
    return Number.parseInt(load('@nestjs/core/package.json').version, 10);
  } catch {
    // A bundle has no packages, and is taken for the newest version.
    return 12;
  }
}

/** The metadata keys of gateways and of their messages. */
const [GATEWAY, MESSAGE] = ['websockets:is_gateway', 'message'];

export function isGateway(provider: object): boolean {
  return Reflect.getMetadata(GATEWAY, provider) === true;
}

/** Returns the methods of a gateway that answer messages. */
export function messagesOf({ prototype }: Type): [name: string, method: (...args: never[]) => unknown][] {
  return Object.entries(Object.getOwnPropertyDescriptors<Record<string, unknown>>(prototype)).flatMap(
    ([name, { value }]) =>
      typeof value === 'function' && Reflect.getMetadata(MESSAGE, value) !== undefined ? [[name, value as never]] : [],
  );
}

interface Container {
  getModules(): Map<string, { readonly providers: Map<unknown, { readonly metatype: unknown }> }>;
}

interface SocketModule {
  register(container: Container, config: { getGlobalGuards(): unknown[] }, ...rest: unknown[]): unknown;
}

let isWatching = false;

/** Calls a function with the gateways of each application of Nest 11 when they are registered, and with its global guards. */
export function watchGateways(seen: (gateways: readonly Type[], guards: readonly unknown[]) => void): void {
  if (isWatching || GUARDS_GATEWAYS) return;
  isWatching = true;
  let prototype: SocketModule;
  try {
    prototype = load('@nestjs/websockets/socket-module').SocketModule.prototype;
  } catch {
    // An application without websockets.
    return;
  }
  const { register } = prototype;
  prototype.register = function (this: SocketModule, container, config, ...rest) {
    const providers = Array.from(container.getModules().values()).flatMap((module) => [...module.providers.values()]);
    const classes = providers
      .map(({ metatype }) => metatype)
      .filter((one) => typeof one === 'function' && isGateway(one));
    seen(classes as Type[], config.getGlobalGuards());
    return register.call(this, container, config, ...rest);
  };
}
