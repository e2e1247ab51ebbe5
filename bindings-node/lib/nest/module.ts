// The module of Nest, which limits all handlers of an application.

import { type DynamicModule, type FactoryProvider, Module, type ModuleMetadata, type Type } from '@nestjs/common';
import { APP_GUARD, ModulesContainer } from '@nestjs/core';
import { ConfigError } from '../errors.js';
import { checkOptions } from '../given-options.js';
import { LIMITS, RATE_LIMIT, RateLimitGuard, type RateLimitGuardOptions, SKIPS } from './guard.js';

/** A provider that makes the options. */
export interface RateLimitOptionsFactory {
  createRateLimitOptions(): RateLimitGuardOptions | Promise<RateLimitGuardOptions>;
}

/** How the options are made, when they need other providers. */
export interface RateLimitModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  /** Makes the options from what is injected. */
  // biome-ignore lint/suspicious/noExplicitAny: the arguments are those that `inject` names
  useFactory?: ((...args: any[]) => RateLimitGuardOptions | Promise<RateLimitGuardOptions>) | undefined;
  inject?: FactoryProvider['inject'];
  /** A class whose instance makes them. */
  useClass?: Type<RateLimitOptionsFactory> | undefined;
  /** A provider that makes them. */
  useExisting?: Type<RateLimitOptionsFactory> | string | symbol | undefined;
}

/** The metadata keys of gateways, their messages, and guards. */
const [GATEWAY, MESSAGE, GUARDS] = ['websockets:is_gateway', 'message', '__guards__'];
/** The metadata keys of handlers that a global guard is asked about in every application: routes and fields of GraphQL. */
const GUARDED = ['path', 'graphql:resolver_type'];

function guardsOf(target: object): readonly unknown[] {
  return Reflect.getMetadata(GUARDS, target) ?? [];
}

function hasGuard(target: object): boolean {
  return guardsOf(target).some((guard) => guard instanceof RateLimitGuard || isGuardClass(guard));
}

function isGuardClass(guard: unknown): boolean {
  return guard === RateLimitGuard || (typeof guard === 'function' && guard.prototype instanceof RateLimitGuard);
}

/** A guard that checks at start what the decorators of the application say. */
class ModuleGuard extends RateLimitGuard {
  readonly #modules: ModulesContainer;

  constructor(options: RateLimitGuardOptions, modules: ModulesContainer) {
    super(options);
    this.#modules = modules;
  }

  onApplicationBootstrap(): void {
    const modules = Array.from(this.#modules.values());
    const own = modules.filter(({ metatype }) => metatype === RateLimitModule);
    const named = own.flatMap((module) => namesOf(module.getProviderByKey(RATE_LIMIT)?.instance?.policy));
    const twice = named.find((name, index) => named.indexOf(name) !== index);
    if (twice !== undefined) {
      throw new ConfigError(
        `tidegate/nest: two RateLimitModules limit each request by ${JSON.stringify(twice)}: name it in one of them only, or remove the other`,
      );
    }
    for (const module of modules) {
      for (const { metatype, token } of [...module.controllers.values(), ...module.providers.values()]) {
        if (metatype === RateLimitGuard && String(token).startsWith(APP_GUARD)) throw guardedTwice('APP_GUARD', 'it');
        if (typeof metatype === 'function' && metatype.prototype) this.#check(metatype as Type);
      }
    }
    this.warnIfIdle();
  }

  /** Nest applies no global guard to gateways: without one of their own they would have no limit. */
  #checkGateway(gateway: Type): void {
    if (hasGuard(gateway)) return;
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors<object>(gateway.prototype))) {
      if (typeof value !== 'function' || Reflect.getMetadata(MESSAGE, value) === undefined || hasGuard(value)) continue;
      if (this.limiterOf(value, gateway) === undefined) continue;
      throw new ConfigError(
        `tidegate/nest: the gateway ${gateway.name} has no limit at ${name}, because Nest applies no global guard to gateways: put ` +
          '@UseGuards(RateLimitGuard) on it, or @SkipRateLimit()',
      );
    }
  }

  /** The guard of the module is asked about each handler: one more would count twice. */
  #checkGuards(controller: Type, name: string, handler: Method): void {
    const twice = [controller, handler].some((target) => guardsOf(target).includes(RateLimitGuard));
    if (!twice || GUARDED.every((key) => Reflect.getMetadata(key, handler) === undefined)) return;
    if (this.limiterOf(handler, controller) === undefined) return;
    throw guardedTwice('@UseGuards(RateLimitGuard)', `${controller.name}.${name}`);
  }

  #check(controller: Type): void {
    if (Reflect.getMetadata(GATEWAY, controller) === true) this.#checkGateway(controller);
    const isDecorated = (target: object): boolean =>
      [LIMITS, SKIPS].some((name) => Reflect.getMetadata(name, target) !== undefined);
    const whole = isDecorated(controller);
    for (const [name, method] of methodsOf(controller)) {
      if (whole || isDecorated(method)) this.limiterOf(method, controller);
      this.#checkGuards(controller, name, method);
    }
  }
}

type Method = (...args: never[]) => unknown;

/** The methods of a class and of those that it extends. */
function* methodsOf({ prototype }: Type): Generator<readonly [name: string, method: Method]> {
  for (let owner = prototype; owner !== Object.prototype && owner !== null; owner = Object.getPrototypeOf(owner)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors<Record<string, unknown>>(owner))) {
      if (name !== 'constructor' && typeof value === 'function') yield [name, value as Method];
    }
  }
}

/** What the default limit of a module names; a function says it for each request. */
function namesOf(policy: unknown): unknown[] {
  return Array.isArray(policy) ? policy.flatMap(namesOf) : [policy].filter((name) => typeof name === 'string');
}

function guardedTwice(extra: string, where: string): ConfigError {
  return new ConfigError(
    `tidegate/nest: RateLimitModule limits every handler already, and ${extra} would limit ${where} once more: remove ${extra}`,
  );
}

/** Limits all handlers of an application: `imports: [RateLimitModule.forRoot({ limiter, policy })]`. */
// biome-ignore lint/complexity/noStaticOnlyClass: a module of Nest is a class
export class RateLimitModule {
  static forRoot(options: RateLimitGuardOptions): DynamicModule {
    // Made here too, so that wrong options are an error where they are written.
    new RateLimitGuard(options);
    return moduleWith([{ provide: RATE_LIMIT, useValue: options }]);
  }

  /** The module with options that are made from other providers: a limiter, a configuration. */
  static forRootAsync(options: RateLimitModuleAsyncOptions): DynamicModule {
    const where = 'tidegate/nest: forRootAsync';
    checkOptions(options, ['imports', 'useFactory', 'inject', 'useClass', 'useExisting'], where);
    const { imports = [], useFactory, inject = [], useClass, useExisting } = options;
    if ([useFactory, useClass, useExisting].filter((way) => way !== undefined).length !== 1) {
      throw new ConfigError(`${where} needs one of useFactory, useClass and useExisting`);
    }
    if (useFactory !== undefined) return moduleWith([{ provide: RATE_LIMIT, useFactory, inject }], imports);
    const factory = (useClass ?? useExisting) as Type<RateLimitOptionsFactory>;
    return moduleWith(
      [
        ...(useClass === undefined ? [] : [useClass]),
        {
          provide: RATE_LIMIT,
          useFactory: (made: RateLimitOptionsFactory) => made.createRateLimitOptions(),
          inject: [factory],
        },
      ],
      imports,
    );
  }
}

Module({})(RateLimitModule);

function moduleWith(
  options: NonNullable<DynamicModule['providers']>,
  imports: NonNullable<DynamicModule['imports']> = [],
): DynamicModule {
  return {
    module: RateLimitModule,
    global: true,
    imports,
    providers: [
      ...options,
      {
        provide: RateLimitGuard,
        useFactory: (given: RateLimitGuardOptions, modules: ModulesContainer) => new ModuleGuard(given, modules),
        inject: [RATE_LIMIT, ModulesContainer],
      },
      { provide: APP_GUARD, useExisting: RateLimitGuard },
    ],
    exports: [RATE_LIMIT, RateLimitGuard],
  };
}
