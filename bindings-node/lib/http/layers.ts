// How options become the limits of a place: those of one middleware, and those of a route over its layer.

import process from 'node:process';

import { ConfigError, describe } from '../errors.js';
import { checkOptions, knownNames } from '../given-options.js';
import { Policy } from '../policy.js';
import { emitWarning } from '../store-changes.js';
import type { Place } from './notation-place.js';
import {
  checkValues,
  type LayerOptions,
  LIMIT_NAMES,
  type PolicyOption,
  type RateLimitOptions,
  ROUTE_NAMES,
  type RouteOptions,
} from './rate-limit-options.js';
import type { LimitParts } from './settings.js';

/** The limits of a middleware. */
export function middlewareParts<Request, Response>(
  options: RateLimitOptions<Request, Response>,
  where: string,
  place: Place<Request>,
): LimitParts<Request, Response> {
  checkOptions(options, LIMIT_NAMES, where);
  checkValues(options as Partial<LayerOptions<never, never>>, where);
  checkLimiter(options.limiter, where);
  if (options.policy === undefined) {
    throw new ConfigError(
      `${where}: the option policy is missing: name a policy or write a notation, such as '100/minute'`,
    );
  }
  const { skip } = options;
  const enabled = isEnabled(options.enabled, where);
  return { options, place, applicationPlace: '', skips: skip === undefined ? [] : [skip], enabled };
}

function checkLimiter(limiter: unknown, where: string): void {
  if (limiter === undefined)
    throw new ConfigError(`${where}: the option limiter is missing: give a Limiter of tidegate`);
}

/** Checks the options of a layer over routes. */
export function checkLayer<Request, Response>(
  options: LayerOptions<Request, Response>,
  where: string,
  more: readonly string[] = [],
): void {
  checkOptions(options, [...LIMIT_NAMES, 'default', ...more], where);
  checkValues(options as Partial<LayerOptions<never, never>>, where);
  checkLimiter(options.limiter, where);
  if (options.policy !== undefined && options.default !== undefined) {
    throw new ConfigError(
      `${where}: policy is one limit for all routes together, default one for each of them: give one of the two`,
    );
  }
}

/** Whether a layer says what routes have that say nothing themselves. */
export function hasLimit<Request, Response>({
  policy,
  default: each,
  application,
}: LayerOptions<Request, Response>): boolean {
  return policy !== undefined || each !== undefined || application !== undefined;
}

/** Warns of a layer that limits nothing: it was registered for some reason. */
export function warnOfIdleLayer(where: string, routes: string, example: string): void {
  emitWarning(
    `${where} limits nothing: it has no policy, no default and no application, and ${routes} names one. Give it a policy, or a ` +
      `limit to a route, as in ${example}`,
  );
}

/** What a route says of its limits, as options; false: it is not limited. Undefined: it says nothing. */
export function routeOptions<Request, Response>(
  given: unknown,
  where: string,
): RouteOptions<Request, Response> | false | undefined {
  if (given === undefined || given === false) return given;
  const isChoice = typeof given === 'string' || typeof given === 'function' || Array.isArray(given);
  const isEntry = typeof given === 'object' && given !== null && 'policy' in given;
  const isPolicy = given instanceof Policy;
  const options = (isChoice || isPolicy ? { policy: given } : given) as RouteOptions<Request, Response>;
  if (typeof options !== 'object' || options === null) {
    throw new ConfigError(
      `${where}: the limits of a route cannot be ${describe(given)}: give a policy, options, or false`,
    );
  }
  for (const name of isEntry || !isChoice ? Object.keys(isPolicy ? {} : options) : []) {
    if (name === 'application' || name === 'default') {
      throw new ConfigError(
        `${where}: ${name} is an option of the layer, not of a route: ${knownNames('policy', ROUTE_NAMES)}`,
      );
    }
  }
  checkOptions(options, ROUTE_NAMES, `${where}: the limits of a route`);
  checkValues(options as Partial<LayerOptions<never, never>>, where);
  return options;
}

/** The places of a route and of its layer. */
export interface LayerPlaces<Request> {
  /** The name of the layer: empty when it covers the whole application. */
  readonly layer: string;
  /** The name of the route; undefined for a request that no route answers. */
  readonly route: Place<Request> | undefined;
}

/** The limits of a route under a layer; undefined when it has none. */
export function routeParts<Request, Response>(
  layer: LayerOptions<Request, Response>,
  own: RouteOptions<Request, Response> | false | undefined,
  { layer: layerPlace, route }: LayerPlaces<Request>,
  where: string,
): LimitParts<Request, Response> | undefined {
  if (own === false) return undefined;
  const { default: each, application, ...common } = layer;
  let policy: PolicyOption<Request> | undefined = own?.policy;
  let place: Place<Request> = route ?? layerPlace;
  if (policy === undefined && common.policy !== undefined) [policy, place] = [common.policy, layerPlace];
  // A default is a budget of each route: a request that no route answers has none.
  if (policy === undefined && route !== undefined) policy = each;
  if (policy === undefined && own !== undefined) {
    throw new ConfigError(
      `${where}: the limits of ${typeof route === 'string' ? route : 'a route'} name no policy, and neither does their layer`,
    );
  }
  if (policy === undefined && application === undefined) return undefined;
  const skips = [layer.skip, own?.skip].filter((skip) => skip !== undefined);
  const given = Object.fromEntries(Object.entries(own ?? {}).filter(([, value]) => value !== undefined));
  const options = { ...common, ...given, application, policy } as LimitParts<Request, Response>['options'];
  const enabled = own?.enabled === false ? false : isEnabled(layer.enabled ?? own?.enabled, where);
  return { options, place, applicationPlace: layerPlace, skips, enabled };
}

const ON = ['1', 'true', 'yes', 'on'];
const OFF = ['0', 'false', 'no', 'off'];

/** Whether limits are applied at all, which tests and a development machine turn off in one place: the option `enabled`; without it the environment variable `TIDEGATE_ENABLED`; without that, true. */
export function isEnabled(option: unknown, where: string): boolean {
  if (typeof option === 'boolean') return option;
  if (option !== undefined) {
    throw new ConfigError(`${where}: the option enabled is ${describe(option)}: it must be true or false`);
  }
  const value = process.env['TIDEGATE_ENABLED']?.trim().toLowerCase() ?? '';
  if (value === '' || ON.includes(value)) return true;
  if (OFF.includes(value)) return false;
  throw new ConfigError(
    `${where}: the environment variable TIDEGATE_ENABLED is ${describe(value)}: it must be one of ${[...ON, ...OFF].join(', ')}`,
  );
}
