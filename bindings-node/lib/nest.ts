// NestJS 11 and 12, on Express and on Fastify, with GraphQL, microservices and websockets: a guard, its decorators, and a module.
//
//     app.useGlobalGuards(new RateLimitGuard({ limiter, policy: 'api' }));
//
//     @Post('login')
//     @RateLimit('5/minute')
//     login() {}

import type { ServerResponse } from 'node:http';
import {
  type CanActivate,
  ConfigurableModuleBuilder,
  type CustomDecorator,
  type DynamicModule,
  type ExecutionContext,
  type FactoryProvider,
  type INestApplicationContext,
  Inject,
  Injectable,
  Module,
  type ModuleMetadata,
  SetMetadata,
  type Type,
} from '@nestjs/common';
import { APP_GUARD, ModulesContainer, Reflector } from '@nestjs/core';
import { delay } from './delay.js';
import { ConfigError, describe, shortened } from './errors.js';
import { checkOptions, knownNames } from './given-options.js';
import { admit } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import type { Place } from './http/notation-place.js';
import type { LayerOptions, PolicyChoice, PolicyOption, RouteOptions } from './http/rate-limit-options.js';
import { checkLayer, routeLimits, routeOptions, type Settings, warnIfIdle } from './http/settings.js';
import { kept } from './kept.js';
import { callOf, clientGone, type NestCall, type NestRequest, type NestResponse, nestAdapter } from './nest/call.js';
import { GUARDS_GATEWAYS, isGateway, messagesOf, watchGateways } from './nest/gateways.js';
import { documentRefusal, hasSwagger } from './nest/swagger.js';
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
const LIMITS = 'tidegate:rate-limit';
const SKIPS = 'tidegate:skip-policies';

/** The options of the guards that were asked about each message and field already. */
const asked = new WeakMap<object, Set<object>>();

/** True if any decorator of this process limits something. */
let isAnythingLimited = false;

/** The injection token of the options, for a guard that Nest makes. */
export const RATE_LIMIT = Symbol.for('tidegate.nest.options');

/**
 * Limits a handler, or all handlers of a controller together, by a policy or by options that override those of the
 * guard. With false it is not limited.
 */
export function RateLimit(limits: HandlerLimits): CustomDecorator<typeof LIMITS> {
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
export function SkipRateLimit(...policies: readonly string[]): CustomDecorator<string> {
  for (const policy of policies as readonly unknown[]) {
    if (typeof policy !== 'string') {
      throw new ConfigError(`tidegate/nest: @SkipRateLimit takes names of policies, not ${describe(policy)}`);
    }
  }
  return policies.length === 0 ? RateLimit(false) : SetMetadata(SKIPS, policies);
}

type NestSettings = Settings<NestRequest, NestCall>;
type Handler = (...args: never[]) => unknown;

/** A guard that limits requests and messages. */
export class RateLimitGuard implements CanActivate {
  readonly #options: RateLimitGuardOptions;
  /** The options object as it was given. A guard of an application and one of a gateway may have the same. */
  readonly #given: RateLimitGuardOptions;
  readonly #reflector = new Reflector();
  readonly #settings = new Map<object, Map<object, NestSettings | undefined>>();
  #warned = false;

  constructor(options: RateLimitGuardOptions) {
    this.#options = checkLayer(options, nestAdapter.name);
    this.#given = options;
    watchGateways(warnOfGateways);
    // Made here, so that wrong options are an error now and not at the first request.
    routeLimits(nestAdapter, this.#options, undefined, '', '');
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const settings = this.settingsOf(context.getHandler() as Handler, context.getClass());
    if (settings !== undefined) {
      const call = callOf(context);
      return this.#wasAsked(call.memory) || respond(settings, call);
    }
    if (!this.#warned && !isAnythingLimited) this.warnOnce();
    return true;
  }

  /** True if a guard with the same options was asked about the call. The guards of an application and of its gateway count once. */
  #wasAsked(memory: object | undefined): boolean {
    if (memory === undefined) return false;
    const options = kept(asked, memory, () => new Set<object>());
    return options.size === options.add(this.#given).size;
  }

  /** @internal Returns a message of the gateway that this guard limits, but that no guard is asked about. */
  unguarded(gateway: Type): string | undefined {
    if (hasGuard(gateway)) return undefined;
    const found = messagesOf(gateway).find(
      ([, method]) => !hasGuard(method) && this.settingsOf(method, gateway) !== undefined,
    );
    return found?.[0];
  }

  /**
   * Makes @nestjs/swagger list 429 for the limited handlers of an application with this global guard. Call it before
   * `SwaggerModule.createDocument`. The guard of a RateLimitModule does this by itself.
   */
  documentRoutes(app: INestApplicationContext): void {
    this.documentControllers(app.get(ModulesContainer, { strict: false }));
  }

  /** @internal */
  documentControllers(modules: ModulesContainer): void {
    for (const { metatype } of Array.from(modules.values()).flatMap(({ controllers }) => [...controllers.values()])) {
      if (typeof metatype !== 'function') continue;
      for (const [name, handler] of methodsOf(metatype as Type)) {
        const settings = this.settingsOf(handler, metatype as Type);
        if (settings !== undefined) documentRefusal(metatype as Type, name, handler, settings);
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
  settingsOf(handler: Handler, controller: Type): NestSettings | undefined {
    // The settings are kept by both, because a handler that two controllers inherit is two places.
    const ofController = kept(this.#settings, controller, () => new Map<object, NestSettings | undefined>());
    return kept(ofController, handler, () => {
      const isDecorated = this.#reflector.get<unknown>(LIMITS, handler) !== undefined;
      const limits = this.#reflector.get<HandlerLimits | undefined>(LIMITS, isDecorated ? handler : controller);
      const skips = this.#reflector.getAllAndOverride<readonly string[] | undefined>(SKIPS, [handler, controller]);
      const options = skips === undefined ? this.#options : withoutPolicies(this.#options, skips);
      const isOfController = limits !== undefined && !isDecorated;
      const place = isOfController ? controllerPlace(controller) : handlerPlace(controller, handler);
      return routeLimits(nestAdapter, options, routeOptions(limits, nestAdapter.name), '', place);
    });
  }
}

Injectable()(RateLimitGuard);
Inject(RATE_LIMIT)(RateLimitGuard, undefined, 0);

async function respond(settings: NestSettings, call: NestCall): Promise<boolean> {
  const { type, request, response } = call;
  const admission = await admit(settings, request, call.memory);
  if (admission === undefined) return true;
  if (admission.decision !== undefined) request.rateLimit = admission.decision;
  if (response !== undefined) admission.announce(call);
  if (!admission.admitted) await admission.refuse(call);
  if (response !== undefined) {
    if (await admission.mayBegin(response.raw ?? (response as unknown as ServerResponse), call)) return true;
    throw clientGone();
  }
  if (admission.needsEnd) {
    admission.end(call);
    throw new ConfigError(
      `tidegate/nest: a message of ${type} has no response that ends, so a concurrency limit, refundWhen and settle ` +
        'cannot be applied to it here: call limiter.hold or limiter.settle in the handler',
    );
  }
  await delay(admission.delayMs);
  return true;
}

function choicesOf(option: PolicyOption<NestRequest> | undefined): readonly unknown[] {
  if (option === undefined) return [];
  return Array.isArray(option) ? option : [option];
}

function nameOf(choice: unknown): unknown {
  const policy = typeof choice === 'object' && choice !== null && 'policy' in choice ? choice.policy : choice;
  return policy instanceof Policy ? policy.name : policy;
}

/** Returns the options of a guard without some of its policies. */
function withoutPolicies(options: RateLimitGuardOptions, skipped: readonly string[]): RateLimitGuardOptions {
  const { policy, default: each, application } = options;
  const names = [policy, each, application].flatMap(choicesOf).map(nameOf);
  for (const name of skipped) {
    if (names.includes(name)) continue;
    const known = names.filter((name) => typeof name === 'string');
    throw new ConfigError(
      `tidegate/nest: @SkipRateLimit names ${JSON.stringify(shortened(name))}, which is no policy of the guard: ${knownNames(name, known)}`,
    );
  }
  const rest = <T>(option: T): T | undefined => {
    if (typeof option === 'function') return option;
    const left = choicesOf(option as PolicyChoice<NestRequest>).filter(
      (one) => !skipped.includes(nameOf(one) as string),
    );
    return left.length === 0 ? undefined : (left as T);
  };
  return { ...options, policy: rest(policy), default: rest(each), application: rest(application) };
}

// The names of handlers and controllers. A notation at one of them counts under that name.

/** The metadata keys of Nest's own decorators. */
const [PATH, HOST, VERSION, PATTERN, MESSAGE] = ['path', 'host', '__version__', 'microservices:pattern', 'message'];

function metadata(name: string, target: object): unknown {
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

function joined(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join(' ');
}

/** Returns the place of a controller: the arguments of its decorator, and its class. */
function controllerPlace(controller: Type): string {
  return joined(...[VERSION, HOST, PATH].map((name) => text(metadata(name, controller))), controller.name);
}

/** Returns the place of a handler: the pattern of its route or of its message, and its name. */
function handlerPlace(controller: Type, handler: Handler): Place<NestRequest> {
  const message = metadata(PATTERN, handler) ?? metadata(MESSAGE, handler);
  const [outer, inner] = [metadata(PATH, controller), metadata(PATH, handler)];
  if (message !== undefined) return `${controller.name}.${handler.name} ${text(message)}`;
  if (inner === undefined) return `${controller.name}.${handler.name}`;
  const version = metadata(VERSION, handler) ?? metadata(VERSION, controller);
  const path = `/${text(outer)}/${text(inner)}`.replaceAll(/\/+/g, '/');
  const place = `${joined(text(version), text(metadata(HOST, controller)), path)}.${handler.name}`;
  // If a handler has several routes, none of them alone is its place.
  if (![outer, inner, version].every(isSingle)) return place;
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
export interface RateLimitModuleAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  /** Makes the options from the injected providers. */
  // biome-ignore lint/suspicious/noExplicitAny: the arguments are those that `inject` names
  useFactory?: ((...args: any[]) => RateLimitGuardOptions | Promise<RateLimitGuardOptions>) | undefined;
  inject?: FactoryProvider['inject'] | undefined;
  /** A class. Nest makes an instance of it, which makes the options. */
  useClass?: Type<RateLimitOptionsFactory> | undefined;
  /** A provider that makes the options. */
  useExisting?: Type<RateLimitOptionsFactory> | string | symbol | undefined;
}

/** The metadata key of guards. */
const GUARDS = '__guards__';
/** The metadata keys of handlers that every application asks a global guard about: routes and fields of GraphQL. */
const GUARDED = ['path', 'graphql:resolver_type'];

function guardsOf(target: object): readonly unknown[] {
  return Reflect.getMetadata(GUARDS, target) ?? [];
}

function hasGuard(target: object): boolean {
  return guardsOf(target).some(
    (guard) =>
      guard === RateLimitGuard ||
      [guard, (guard as Partial<Type>).prototype].some((one) => one instanceof RateLimitGuard),
  );
}

const NO_GUARD =
  'because Nest 11 applies no global guard to gateways: put @UseGuards(RateLimitGuard) on it, or @SkipRateLimit()';

/** Warns of messages that a guard made by hand would limit if Nest asked it. */
function warnOfGateways(gateways: readonly Type[], guards: readonly unknown[]): void {
  for (const guard of guards) {
    if (!(guard instanceof RateLimitGuard) || guard instanceof ModuleGuard) continue;
    for (const gateway of gateways) {
      const name = guard.unguarded(gateway);
      if (name === undefined) continue;
      emitWarning(
        `the guard of tidegate/nest limits no message of the gateway ${gateway.name}, such as ${name}, ${NO_GUARD}. A guard that was ` +
          'made by hand is put there itself, as in @UseGuards(guard)',
      );
    }
  }
}

/** A guard that checks the decorators of the application when it starts. */
class ModuleGuard extends RateLimitGuard {
  constructor(
    options: RateLimitGuardOptions,
    private readonly modules: ModulesContainer,
  ) {
    super(options);
    if (!hasSwagger()) return;
    try {
      // This runs now, because the document is made before the application starts.
      this.documentControllers(modules);
    } catch {
      // A wrong limit is an error when the application starts.
    }
  }

  onApplicationBootstrap(): void {
    const modules = Array.from(this.modules.values());
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
    this.warnOnce();
  }

  #checkGateway(gateway: Type): void {
    const name = this.unguarded(gateway);
    if (name === undefined) return;
    throw new ConfigError(`tidegate/nest: the gateway ${gateway.name} has no limit at ${name}, ${NO_GUARD}`);
  }

  /** Throws for one more guard on a handler, because the guard of the module is asked already and the call would count twice. */
  #checkGuards(controller: Type, name: string, handler: Handler): void {
    const twice = [controller, handler].some((target) => guardsOf(target).includes(RateLimitGuard));
    if (!twice || GUARDED.every((key) => Reflect.getMetadata(key, handler) === undefined)) return;
    if (this.settingsOf(handler, controller) === undefined) return;
    throw guardedTwice('@UseGuards(RateLimitGuard)', `${controller.name}.${name}`);
  }

  #check(controller: Type): void {
    if (!GUARDS_GATEWAYS && isGateway(controller)) this.#checkGateway(controller);
    const isDecorated = (target: object): boolean =>
      [LIMITS, SKIPS].some((name) => Reflect.getMetadata(name, target) !== undefined);
    const whole = isDecorated(controller);
    for (const [name, method] of methodsOf(controller)) {
      if (whole || isDecorated(method)) this.settingsOf(method, controller);
      this.#checkGuards(controller, name, method);
    }
  }
}

/** The methods of a class and of those that it extends. */
function* methodsOf({ prototype }: Type): Generator<readonly [name: string, method: Handler]> {
  for (let owner = prototype; owner !== Object.prototype && owner !== null; owner = Object.getPrototypeOf(owner)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors<Record<string, unknown>>(owner))) {
      if (name !== 'constructor' && typeof value === 'function') yield [name, value as Handler];
    }
  }
}

/** Returns the policies that a module names. A function names none, because it chooses one for each request. */
function namesOf(policy: unknown): unknown[] {
  return Array.isArray(policy) ? policy.flatMap(namesOf) : [policy].filter((name) => typeof name === 'string');
}

function guardedTwice(extra: string, where: string): ConfigError {
  return new ConfigError(
    `tidegate/nest: RateLimitModule limits every handler already, and ${extra} would limit ${where} once more: remove ${extra}`,
  );
}

const { ConfigurableModuleClass: OptionsModule } = new ConfigurableModuleBuilder<RateLimitGuardOptions>({
  optionsInjectionToken: RATE_LIMIT,
})
  .setClassMethodName('forRoot')
  .setFactoryMethodName('createRateLimitOptions')
  .build();

/** Limits all handlers of an application: `imports: [RateLimitModule.forRoot({ limiter, policy })]`. */
// biome-ignore lint/complexity/noStaticOnlyClass: a module of Nest is a class
export class RateLimitModule {
  static forRoot(options: RateLimitGuardOptions): DynamicModule {
    // Made here too, so that wrong options are an error where they are written.
    new RateLimitGuard(options);
    return withGuard(OptionsModule.forRoot(options));
  }

  /** Returns the module with options made from other providers, such as a limiter or a configuration. */
  static forRootAsync(options: RateLimitModuleAsyncOptions): DynamicModule {
    const where = 'tidegate/nest: forRootAsync';
    const ways = ['useFactory', 'useClass', 'useExisting'] as const;
    checkOptions(options, ['imports', 'useFactory', 'inject', 'useClass', 'useExisting'], where);
    if (ways.filter((way) => options[way] !== undefined).length !== 1) {
      throw new ConfigError(`${where} needs one of useFactory, useClass and useExisting`);
    }
    return withGuard(OptionsModule.forRootAsync(options as Parameters<typeof OptionsModule.forRootAsync>[0]));
  }
}

Module({})(RateLimitModule);

function withGuard({ imports = [], providers = [] }: DynamicModule): DynamicModule {
  const guard: FactoryProvider = {
    provide: RateLimitGuard,
    useFactory: (given: RateLimitGuardOptions, modules: ModulesContainer) => new ModuleGuard(given, modules),
    inject: [RATE_LIMIT, ModulesContainer],
  };
  return {
    module: RateLimitModule,
    global: true,
    imports,
    providers: [...providers, guard, { provide: APP_GUARD, useExisting: RateLimitGuard }],
    exports: [RATE_LIMIT, RateLimitGuard],
  };
}
