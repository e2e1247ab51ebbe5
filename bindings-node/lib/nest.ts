// NestJS 11 and 12, on Express and on Fastify, with GraphQL, microservices and websockets: a guard, its decorators, and a module.
//
//     app.useGlobalGuards(new RateLimitGuard({ limiter, policy: 'api' }));
//
//     @Post('login')
//     @RateLimit('5/minute')
//     login() {}

import type * as Nest from '@nestjs/common';
import { HttpException, Inject, Injectable, Module, SetMetadata } from '@nestjs/common';
import { APP_GUARD, DiscoveryService, ModuleRef, ModulesContainer } from '@nestjs/core';
import { ConfigError, describe, shortened } from './errors.js';
import { checkOptions, knownNames } from './given-options.js';
import type { Ending } from './http/adapter.js';
import { admit } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { type Place, patternText } from './http/notation-place.js';
import type { LayerOptions, PolicyOption, RouteOptions } from './http/rate-limit-options.js';
import { checkLayer, routeLimits, routeOptions, warnIfIdle } from './http/settings.js';
import { kept } from './kept.js';
import { callOf, type NestRequest, type NestResponse, nestAdapter } from './nest/call.js';
import { type Handler, methodsOf, unaskedMessages, watchGateways } from './nest/gateways.js';
import { documentRefusal, type NestSettings } from './nest/swagger.js';
import { Policy } from './policy.js';
import { emitWarning } from './store-changes.js';

export { type NestRequest, type NestResponse, RateLimitException } from './nest/call.js';

export const { clientIp, header, user, claim, fixed }: Keys<NestRequest> = keysOf(nestAdapter);

/** The options of a guard. Without a policy only handlers that name one are limited. */
export interface RateLimitGuardOptions extends LayerOptions<NestRequest, NestResponse> {}

export type { RateLimitGuardOptions as RateLimitOptions };

/** The limits of a handler or of a controller. */
export type HandlerLimits = PolicyOption<NestRequest> | RouteOptions<NestRequest, NestResponse> | false;

/** The metadata keys of limits, and of the names of policies that do not apply. */
const [LIMITS, SKIPS] = ['tidegate:rate-limit', 'tidegate:skip-policies'] as const;

/** The messages and fields that guards with these options were asked about already. */
const asked = new WeakMap<object, WeakSet<object>>();

/** True if any decorator of this process limits something. */
let isAnythingLimited = false;

/** The injection token of the options, for a guard that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

/**
 * Limits a handler, or all handlers of a controller together, by a policy or by options that override those of the
 * guard. With false it is not limited.
 */
export function RateLimit(limits: HandlerLimits): Nest.CustomDecorator<typeof LIMITS> {
  if (limits === undefined)
    throw new ConfigError('tidegate/nest: @RateLimit() without a policy limits nothing: name one');
  // The limits are checked here, where they are written.
  routeOptions(limits, 'tidegate/nest: @RateLimit');
  if (limits !== false) isAnythingLimited = true;
  return SetMetadata(LIMITS, limits);
}

/**
 * Exempts the handler or the controller from limits. With names it exempts them only from these policies of the guard,
 * as in `@SkipRateLimit('burst')`.
 */
export function SkipRateLimit(...policies: readonly string[]): Nest.CustomDecorator<string> {
  for (const policy of policies as readonly unknown[]) {
    if (typeof policy === 'string') continue;
    throw new ConfigError(`tidegate/nest: @SkipRateLimit takes names of policies, not ${describe(policy)}`);
  }
  return policies.length === 0 ? RateLimit(false) : SetMetadata(SKIPS, policies);
}

/** A guard that limits requests and messages. */
export class RateLimitGuard implements Nest.CanActivate {
  readonly #options: RateLimitGuardOptions;
  /** The counts of guards with the same options object: one of an application, and one of its gateway. */
  readonly #asked: WeakSet<object>;
  readonly #settings = new Map<object, Map<object, NestSettings | undefined>>();
  #warned = false;

  constructor(options: RateLimitGuardOptions) {
    this.#options = checkLayer(options, nestAdapter.name);
    this.#asked = kept(asked, options, () => new WeakSet());
    // Made here, so that wrong options are an error now and not at the first request.
    routeLimits(nestAdapter, this.#options, undefined, '', '');
  }

  async canActivate(context: Nest.ExecutionContext): Promise<boolean> {
    const settings = this.settingsOf(context.getHandler() as Handler, context.getClass());
    if (settings === undefined) {
      if (!this.#warned && !isAnythingLimited) this.warnOnce();
      return true;
    }
    const call = callOf(context);
    const { type, request, response, memory } = call;
    if (memory !== undefined && this.#asked.has(memory)) return true;
    if (memory !== undefined) this.#asked.add(memory);
    const admission = await admit(settings, request, memory);
    if (admission === undefined) return true;
    if (admission.decision !== undefined) request.rateLimit = admission.decision;
    if (response !== undefined) admission.announce(call);
    if (!admission.admitted) await admission.refuse(call);
    if (response === undefined && admission.needsEnd) {
      admission.end(call);
      throw new ConfigError(
        `tidegate/nest: a message of ${type} has no response that ends, so a concurrency limit, refundWhen and settle ` +
          'cannot be applied to it here: call limiter.hold or limiter.settle in the handler',
      );
    }
    const ending = response?.raw ?? (response as Ending | undefined) ?? { once: () => {} };
    if (await admission.mayBegin(ending, call)) return true;
    // The client did not wait, so no handler starts. This reaches no client.
    throw new HttpException('the client has gone', 499);
  }

  /** @internal Returns a message of the gateway that this guard limits, but that no guard is asked about, and why. */
  unguarded(gateway: Nest.Type): string | undefined {
    const messages = hasGuard(gateway) ? [] : unaskedMessages(gateway);
    const found = messages.find(([, method]) => !hasGuard(method) && this.settingsOf(method, gateway) !== undefined);
    return (
      found &&
      `${found[0]}, because Nest 11 applies no global guard to gateways: put @UseGuards(RateLimitGuard) on it, or @SkipRateLimit()`
    );
  }

  /**
   * Makes @nestjs/swagger list 429 for the limited handlers of an application with this global guard. Call it before
   * `SwaggerModule.createDocument`. The guard of a RateLimitModule does this by itself.
   */
  documentRoutes(app: Pick<Nest.INestApplicationContext, 'get'>): void {
    for (const { metatype } of new DiscoveryService(app.get(ModulesContainer, { strict: false })).getControllers()) {
      const controller = metatype as Nest.Type;
      for (const [name, handler] of methodsOf(controller)) {
        const settings = this.settingsOf(handler, controller);
        if (settings !== undefined) documentRefusal(controller, name, handler, settings);
      }
    }
  }

  /** @internal Warns once if neither the guard nor any handler that it has seen has a limit. */
  warnOnce(): void {
    const seen = Array.from(this.#settings.values()).flatMap((ofController) => Array.from(ofController.values()));
    if (this.#warned || seen.some((settings) => settings !== undefined)) return;
    this.#warned = true;
    warnIfIdle(this.#options, nestAdapter.name, ['guard', 'handler', "@RateLimit('5/minute')"]);
  }

  /** @internal Returns the limits of a handler. A decorator of the handler overrides one of its controller. */
  settingsOf(handler: Handler, controller: Nest.Type): NestSettings | undefined {
    // The settings are kept by both, because a handler that two controllers inherit is two places.
    const known = kept(this.#settings, controller, () => new Map<object, NestSettings | undefined>());
    return kept(known, handler, () => {
      const [own, ofController] = [metadata(LIMITS, handler), metadata(LIMITS, controller)];
      const skips = (metadata(SKIPS, handler) ?? metadata(SKIPS, controller) ?? []) as readonly string[];
      const options = withoutPolicies(this.#options, skips);
      const isOfController = own === undefined && ofController !== undefined;
      const place = isOfController ? controllerPlace(controller) : handlerPlace(controller, handler);
      return routeLimits(nestAdapter, options, routeOptions(own ?? ofController, nestAdapter.name), '', place);
    });
  }
}

Injectable()(RateLimitGuard);
Inject(RATE_LIMIT)(RateLimitGuard, undefined, 0);

function nameOf(choice: unknown): unknown {
  const policy = typeof choice === 'object' && choice !== null && 'policy' in choice ? choice.policy : choice;
  return policy instanceof Policy ? policy.name : policy;
}

/** Returns the options of a guard without some of its policies. */
function withoutPolicies(options: RateLimitGuardOptions, skipped: readonly string[]): RateLimitGuardOptions {
  const { policy, default: each, application } = options;
  const names = [policy, each, application].flat().map(nameOf);
  const wrong = skipped.find((name) => !names.includes(name));
  if (wrong !== undefined) {
    const known = names.filter((name) => typeof name === 'string');
    throw new ConfigError(
      `tidegate/nest: @SkipRateLimit names ${JSON.stringify(shortened(wrong))}, which is not a policy of the guard: ${knownNames(wrong, known)}`,
    );
  }
  const rest = <T>(option: T): T | undefined => {
    if (typeof option === 'function' || option === undefined) return option;
    const left = [option].flat().filter((one) => !skipped.includes(nameOf(one) as string));
    return left.length === 0 ? undefined : (left as T);
  };
  return { ...options, policy: rest(policy), default: rest(each), application: rest(application) };
}

// The names of handlers and controllers. A notation at one of them counts under that name.

/** The metadata keys of Nest's own decorators. */
const [PATH, HOST, VERSION, PATTERN, MESSAGE] = ['path', 'host', '__version__', 'microservices:pattern', 'message'];

const metadata: (name: string, target: object) => unknown = Reflect.getMetadata;

function text(value: unknown): string {
  if (Array.isArray(value)) return value.map(text).join(',');
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : patternText(value);
}

/** Returns the place of a controller: the arguments of its decorator, and its class. */
function controllerPlace(controller: Nest.Type): string {
  const given = [VERSION, HOST, PATH].map((name) => text(metadata(name, controller)));
  return [...given, controller.name].filter(Boolean).join(' ');
}

/** Returns the place of a handler: the pattern of its route or of its message, and its name. */
function handlerPlace(controller: Nest.Type, handler: Handler): Place<NestRequest> {
  const message = metadata(PATTERN, handler) ?? metadata(MESSAGE, handler);
  const [outer, inner] = [metadata(PATH, controller), metadata(PATH, handler)];
  if (message !== undefined) return `${controller.name}.${handler.name} ${text(message)}`;
  if (inner === undefined) return `${controller.name}.${handler.name}`;
  const version = metadata(VERSION, handler) ?? metadata(VERSION, controller);
  const path = `/${text(outer)}/${text(inner)}`.replaceAll(/\/+/g, '/');
  const place = `${[text(version), text(metadata(HOST, controller)), path].filter(Boolean).join(' ')}.${handler.name}`;
  // If a handler has several routes, none of them alone is its place.
  if ([outer, inner, version].some((one) => Array.isArray(one) && one.length > 1)) return place;
  return (request) => {
    const { routeOptions, route } = request as { routeOptions?: { url?: string }; route?: { path?: unknown } };
    const pattern = routeOptions?.url ?? route?.path;
    return typeof pattern === 'string' ? `${pattern}.${handler.name}` : place;
  };
}

/** A provider that makes the options. */
export interface RateLimitOptionsFactory {
  createRateLimitOptions(): RateLimitGuardOptions | Promise<RateLimitGuardOptions>;
}

/** The ways to make the options from other providers. */
export interface RateLimitModuleAsyncOptions extends Pick<Nest.ModuleMetadata, 'imports'> {
  /** Makes the options from the injected providers. */
  // biome-ignore lint/suspicious/noExplicitAny: the arguments are those that `inject` names
  useFactory?: ((...args: any[]) => RateLimitGuardOptions | Promise<RateLimitGuardOptions>) | undefined;
  inject?: Nest.FactoryProvider['inject'] | undefined;
  /** A class. Nest makes an instance of it, which makes the options. */
  useClass?: Nest.Type<RateLimitOptionsFactory> | undefined;
  /** A provider that makes the options. */
  useExisting?: Nest.Type<RateLimitOptionsFactory> | string | symbol | undefined;
}

/** The metadata key of guards. */
const GUARDS = '__guards__';
/** The metadata keys of handlers that every application asks a global guard about: routes and fields of GraphQL. */
const GUARDED = ['path', 'graphql:resolver_type'];

const guardsOf = (target: object): readonly object[] => Reflect.getMetadata(GUARDS, target) ?? [];

/** True if a guard is one of ours: an object, the class itself, or a class that extends it. */
function hasGuard(target: object): boolean {
  const kinds = guardsOf(target).flatMap((guard) => [guard, (guard as Partial<Nest.Type>).prototype]);
  return kinds.some((one) => one instanceof RateLimitGuard || one === RateLimitGuard);
}

/** Warns of messages that a guard made by hand would limit if Nest asked it. */
watchGateways((gateway, guard) => {
  const isMadeByHand = guard instanceof RateLimitGuard && !(guard instanceof ModuleGuard);
  const message = isMadeByHand ? guard.unguarded(gateway) : undefined;
  if (message === undefined) return;
  emitWarning(
    `the guard of tidegate/nest limits no message of the gateway ${gateway.name}, such as ${message}. A guard that was made by hand is ` +
      'put there itself, as in @UseGuards(guard)',
  );
});

/** A guard that checks the decorators of the application when it starts. */
class ModuleGuard extends RateLimitGuard {
  readonly #app: ModuleRef;

  constructor(options: RateLimitGuardOptions, app: ModuleRef) {
    super(options);
    this.#app = app;
    try {
      // This runs now, because the document of @nestjs/swagger is made before the application starts.
      this.documentRoutes(app);
    } catch {
      // A wrong limit is an error when the application starts.
    }
  }

  onApplicationBootstrap(): void {
    const modules = this.#app.get(ModulesContainer, { strict: false });
    const own = [...modules.values()].filter(({ metatype }) => metatype === RateLimitModule);
    const named = own.flatMap((module) => module.getProviderByKey(RATE_LIMIT)?.instance?.policy);
    const twice = named.find((name, index) => typeof name === 'string' && named.indexOf(name) !== index);
    if (twice !== undefined) {
      throw new ConfigError(
        `tidegate/nest: two RateLimitModules limit each request by ${JSON.stringify(twice)}: name it in one of them only, or remove the other`,
      );
    }
    const discovery = new DiscoveryService(modules);
    for (const { metatype, token } of [...discovery.getControllers(), ...discovery.getProviders()]) {
      if (metatype === RateLimitGuard && String(token).startsWith(APP_GUARD)) throw guardedTwice('APP_GUARD', 'it');
      if (typeof metatype === 'function') this.#check(metatype as Nest.Type);
    }
    this.warnOnce();
  }

  #check(controller: Nest.Type): void {
    const message = this.unguarded(controller);
    if (message !== undefined) {
      throw new ConfigError(`tidegate/nest: the gateway ${controller.name} has no limit at ${message}`);
    }
    for (const [name, method] of methodsOf(controller)) {
      const has = (key: string, target: object): boolean => metadata(key, target) !== undefined;
      const isDecorated = [LIMITS, SKIPS].some((key) => has(key, controller) || has(key, method));
      // The guard of the module is asked already, and with one more guard the call would count twice.
      const isGuarded = [controller, method].some((target) => guardsOf(target).includes(RateLimitGuard));
      const isGuardedTwice = isGuarded && GUARDED.some((key) => has(key, method));
      const isLimited = (isDecorated || isGuardedTwice) && this.settingsOf(method, controller) !== undefined;
      if (isGuardedTwice && isLimited) throw guardedTwice('@UseGuards(RateLimitGuard)', `${controller.name}.${name}`);
    }
  }
}

Inject(ModuleRef)(ModuleGuard, undefined, 1);

function guardedTwice(extra: string, where: string): ConfigError {
  return new ConfigError(
    `tidegate/nest: RateLimitModule limits every handler already, and ${extra} would limit ${where} once more: remove ${extra}`,
  );
}

/** Limits all handlers of an application: `imports: [RateLimitModule.forRoot({ limiter, policy })]`. */
// biome-ignore lint/complexity/noStaticOnlyClass: a module of Nest is a class
export class RateLimitModule {
  static forRoot(options: RateLimitGuardOptions): Nest.DynamicModule {
    // Made here too, so that wrong options are an error where they are written.
    new RateLimitGuard(options);
    return moduleOf([{ provide: RATE_LIMIT, useValue: options }]);
  }

  /** Returns the module with options made from other providers, such as a limiter or a configuration. */
  static forRootAsync(options: RateLimitModuleAsyncOptions): Nest.DynamicModule {
    const where = 'tidegate/nest: forRootAsync';
    checkOptions(options, ['imports', 'useFactory', 'inject', 'useClass', 'useExisting'], where);
    const { imports, useFactory, inject = [], useClass, useExisting } = options;
    if ([useFactory, useClass, useExisting].filter((way) => way !== undefined).length !== 1) {
      throw new ConfigError(`${where} needs one of useFactory, useClass and useExisting`);
    }
    const given = useExisting ?? useClass;
    const byFactory = (factory: RateLimitOptionsFactory): unknown => factory.createRateLimitOptions();
    const made = { provide: RATE_LIMIT, useFactory: useFactory ?? byFactory, inject: given ? [given] : inject };
    return moduleOf(useClass === undefined ? [made] : [made, useClass], imports);
  }
}

Module({})(RateLimitModule);

function moduleOf(providers: Nest.Provider[], imports: Nest.DynamicModule['imports'] = []): Nest.DynamicModule {
  const guard = { provide: RateLimitGuard, useClass: ModuleGuard };
  return {
    module: RateLimitModule,
    global: true,
    imports,
    providers: [...providers, guard, { provide: APP_GUARD, useExisting: RateLimitGuard }],
    exports: [RATE_LIMIT, RateLimitGuard],
  };
}
