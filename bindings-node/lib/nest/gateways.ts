// Which gateways a global guard is asked about: all of them since Nest 12, and none before. What of Nest 11 says that its gateways are
// registered is not public: without it a guard that an application has made by hand would limit no message, in silence.

import { createRequire } from 'node:module';
import type { Type } from '@nestjs/common';

/** Nest's own packages for messages are there where messages are. */
export const load = createRequire(__filename);

/** Whether Nest asks global guards about the messages of gateways. */
export const GUARDS_GATEWAYS = majorOfNest() >= 12;

function majorOfNest(): number {
  try {
    return Number.parseInt(load('@nestjs/core/package.json').version, 10);
  } catch {
    // A bundle, which has no packages: it is taken for the newest.
    return 12;
  }
}

/** The metadata keys of gateways and of their messages. */
const [GATEWAY, MESSAGE] = ['websockets:is_gateway', 'message'];

export function isGateway(provider: object): boolean {
  return Reflect.getMetadata(GATEWAY, provider) === true;
}

/** The methods of a gateway that answer messages. */
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
