// Where a middleware of Express is registered. Express tells a middleware the path of a request, which a client chooses, and not the
// pattern that matched it. The patterns are in the lists of the routers, in which the middleware is found once.

import type { Request } from 'express';
import { patternText, placeUnknown } from './http/notation-place.js';

interface Route {
  readonly path: unknown;
  readonly stack: readonly Layer[];
}

interface Layer {
  readonly handle: unknown;
  readonly route?: Route | undefined;
  /** The pattern, in Express 5 with router 2.3 and newer. */
  readonly rawPath?: unknown;
  /** The pattern as Express 4 compiles it. */
  readonly regexp?: RegExp & { readonly fast_slash?: boolean; readonly fast_star?: boolean };
  /** Whether the pattern is that of every path. */
  readonly slash?: boolean;
}

interface Application {
  readonly mountpath?: unknown;
  readonly parent?: Application;
  /** Express 5. */
  readonly router?: { readonly stack?: readonly Layer[] };
  /** Express 4, where reading `router` throws. */
  readonly _router?: { readonly stack?: readonly Layer[] };
}

interface Registration {
  /** Undefined when Express keeps no pattern. */
  readonly pattern: string | undefined;
  readonly route: Route | undefined;
}

/** The pattern of a layer of `use`. */
function patternOf(layer: Layer): string | undefined {
  if (layer.rawPath !== undefined) return patternText(layer.rawPath);
  if (layer.slash || layer.regexp?.fast_slash) return '';
  if (layer.regexp === undefined) return undefined;
  if (layer.regexp.fast_star) return '*';
  const plain = /^\^((?:\\\/[\w.~-]+)+)\\\/\?\(\?=\\\/\|\$\)$/.exec(layer.regexp.source);
  return plain?.[1] === undefined ? layer.regexp.source : plain[1].replaceAll('\\/', '/');
}

function stackOf(handle: unknown): readonly Layer[] | undefined {
  if (typeof handle !== 'function') return undefined;
  const { stack, set, handle: handles } = handle as { stack?: unknown; set?: unknown; handle?: unknown };
  if (Array.isArray(stack)) return stack as readonly Layer[];
  // An application that was given to a router.
  return typeof set === 'function' && typeof handles === 'function'
    ? routerOf(handle as Application)?.stack
    : undefined;
}

function routerOf(app: Application): { readonly stack?: readonly Layer[] } | undefined {
  return '_router' in app ? app._router : app.router;
}

/** Collects every registration of a middleware in a router and the routers in it. */
function collect(
  stack: readonly Layer[],
  middleware: unknown,
  before: string | undefined,
  found: Registration[],
): void {
  for (const layer of stack) {
    const { route, handle } = layer;
    if (route !== undefined) {
      if (!route.stack.some((inner) => inner.handle === middleware)) continue;
      found.push({ pattern: joined(before, patternText(route.path)), route });
      continue;
    }
    const inner = handle === middleware ? undefined : stackOf(handle);
    if (handle !== middleware && inner === undefined) continue;
    const pattern = joined(before, patternOf(layer));
    if (inner === undefined) found.push({ pattern, route: undefined });
    else collect(inner, middleware, pattern, found);
  }
}

function joined(before: string | undefined, pattern: string | undefined): string | undefined {
  return before === undefined || pattern === undefined ? undefined : before + pattern;
}

/** The patterns at which an application is mounted in others. */
function mountOf(app: Application): string {
  return app.parent === undefined ? '' : mountOf(app.parent) + patternText(app.mountpath);
}

const ADAPTER = 'tidegate/express';
const WRAPPED =
  'Express does not say where this one is: its middleware is called by another function below a mounted router';

/** Finds the place of one middleware, once for each application. */
export function placeFinder(middleware: () => unknown): (request: Request) => string {
  const known = new WeakMap<object, readonly Registration[]>();

  function registrations(app: Application & object): readonly Registration[] {
    const before = known.get(app);
    if (before !== undefined) return before;
    const found: Registration[] = [];
    collect(routerOf(app)?.stack ?? [], middleware(), mountOf(app), found);
    // Otherwise another function calls it, or it is not registered yet.
    if (found.length > 0) known.set(app, found);
    return found;
  }

  return (request) => {
    const app = request.app as (Application & object) | undefined;
    const all = app === undefined ? [] : registrations(app);
    const here = all.length < 2 ? all : at(all, request);
    const patterns = new Set(here.map(({ pattern }) => pattern));
    const [pattern] = patterns;
    if (patterns.size === 1 && pattern !== undefined) return pattern;
    // Without a mount in the way, the route alone is the pattern.
    if ((request.baseUrl ?? '') === '' && all.length === 0) return patternText(request.route?.path);
    throw placeUnknown(ADAPTER, WRAPPED);
  };
}

/** Of several registrations of one middleware, those that a request can have come through. */
function at(all: readonly Registration[], request: Request): readonly Registration[] {
  const ofRoute = all.filter(({ route }) => route !== undefined && route === request.route);
  if (ofRoute.length > 0) return ofRoute;
  const base = (request.baseUrl ?? '').toLowerCase();
  const used = all.filter(({ route }) => route === undefined);
  const exact = used.filter(({ pattern }) => pattern?.toLowerCase() === base);
  return exact.length > 0 ? exact : used;
}
