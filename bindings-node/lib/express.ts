// Express 4 and 5.
//
//     app.use(rateLimit({ limiter, policy: 'api' }));

import { IncomingMessage } from 'node:http';

import type { NextFunction, Request, RequestHandler, Response } from 'express';
import type { Decision } from './decision.js';
import { delay } from './delay.js';
import { type Adapter, isOver, nodeRequestAdapter } from './http/adapter.js';
import { type Admission, admit, latestAdmission } from './http/admission.js';
import { type Keys, keysOf } from './http/keys.js';
import { patternText, Unrouted } from './http/notation-place.js';
import { expressTrust } from './http/proxy-trust.js';
import type { RateLimitOptions as CommonOptions } from './http/rate-limit-options.js';
import { MEDIA_TYPE } from './http/refusal.js';
import { middlewareLimits } from './http/settings.js';

declare global {
  namespace Express {
    interface Request {
      /** The Decision of `rateLimit` of tidegate/express about this request. */
      rateLimit?: Decision;
    }
  }
}

const adapter: Adapter<Request, Response> = {
  // Express 5 gives each request an object shape of its own, so that one more property costs it as much as everything else here.
  // So the admissions of a request are kept beside it, and found through the prototype that all requests have in common.
  ...nodeRequestAdapter<Request>('tidegate/express', {
    trusts: expressTrust,
    memory: (request) => request.rawHeaders ?? request,
  }),
  setField: (response, name, value) => response.setHeader(name, value),
  setStatus: (response, status) => response.status(status),
  refuse(response, body, refused) {
    if (response.headersSent) return;
    // Not through `send`, which would add a charset: JSON has none.
    if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(refused.problem());
    else response.send(body);
  },
};

/** Makes `request.rateLimit` return the Decision. */
function exposeDecision(request: Request, decision: Decision | undefined): void {
  const prototype = request.app === undefined ? undefined : commonPrototypeOf(request);
  if (prototype === undefined) {
    if (decision !== undefined) request.rateLimit = decision;
  } else if (!Object.hasOwn(prototype, 'rateLimit')) {
    Object.defineProperty(prototype, 'rateLimit', {
      configurable: true,
      get(this: Request): Decision | undefined {
        return latestAdmission(adapter, this)?.passed.find((admission) => admission.decision !== undefined)?.decision;
      },
      // A value that the application assigns stays.
      set(this: Request, value: unknown) {
        Object.defineProperty(this, 'rateLimit', { value, configurable: true, enumerable: true, writable: true });
      },
    });
  }
}

/** The prototype that the requests of all applications share, directly above Node's; undefined for other requests. */
function commonPrototypeOf(request: Request): object | undefined {
  let common: object | undefined;
  for (let next: object | null = Object.getPrototypeOf(request); next !== null; next = Object.getPrototypeOf(next)) {
    if (next === IncomingMessage.prototype) return common;
    common = next;
  }
  return undefined;
}

export const { clientIp, header, user, claim, fixed }: Keys<Request> = keysOf(adapter);

/** The options of `rateLimit`. */
export type RateLimitOptions = CommonOptions<Request, Response>;

type ExpressAdmission = Admission<Request, Response> | undefined;

/** A middleware that limits requests. */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const settings = middlewareLimits(
    adapter,
    options,
    placeFinder(() => middleware),
  );
  const middleware: RequestHandler = (request, response, next) => {
    let admission: ExpressAdmission | Promise<ExpressAdmission>;
    try {
      admission = admit(settings, request);
    } catch (error) {
      next(error);
      return;
    }
    // Without `await`, because one more promise costs a request as much as its check.
    if (admission instanceof Promise) admission.then((admission) => respond(admission, request, response, next), next);
    else respond(admission, request, response, next);
  };
  return middleware;
}

function respond(admission: ExpressAdmission, request: Request, response: Response, next: NextFunction): void {
  let delayMs = 0;
  try {
    if (admission !== undefined) {
      exposeDecision(request, admission.decision);
      admission.announce(response);
      if (!admission.admitted) {
        admission.refuse(response).catch(next);
        return;
      }
      admission.endWith(response, response);
      if (isOver(response)) return;
      delayMs = admission.delayMs;
    }
  } catch (error) {
    next(error);
    return;
  }
  // Outside of the `try`, so that an error of a handler is not caught here.
  if (delayMs === 0) next();
  else {
    delay(delayMs).then(() => {
      if (!isOver(response)) next();
    });
  }
}

// Where a middleware is registered. Express tells a middleware the path of a request, which a client chooses, and not the pattern
// that matched it. The patterns are in the lists of the routers, in which the middleware is found.

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
  /** The beginning of a path that it matches; true in versions that set it. */
  match?(path: string): boolean | { readonly path?: string };
  readonly path?: string;
}

interface Application {
  readonly parent?: Application;
  /** Express 5. */
  readonly router?: { readonly stack?: readonly Layer[] };
  /** Express 4, where reading `router` throws. */
  readonly _router?: { readonly stack?: readonly Layer[] };
}

/** The layers of `use` that lead to a place, from the outermost application on, and their patterns. */
interface Mount {
  /** Undefined when Express keeps no pattern. */
  readonly pattern: string | undefined;
  readonly layers: readonly Layer[];
}

interface Registration {
  /** Undefined when Express keeps no pattern. */
  readonly pattern: string | undefined;
  readonly route: Route | undefined;
  readonly mount: Mount;
}

/** Says what is looked for: a middleware, or a route. */
interface Sought {
  readonly middleware?: unknown;
  readonly route?: Route;
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

/** Collects every registration of what is sought in a router and the routers in it. */
function collect(stack: readonly Layer[], sought: Sought, before: Mount, found: Registration[]): void {
  for (const layer of stack) {
    const { route, handle } = layer;
    if (route !== undefined) {
      const { middleware } = sought;
      const isHere = route === sought.route || route.stack.some((inner) => inner.handle === middleware);
      if (isHere) found.push({ pattern: joined(before.pattern, patternText(route.path)), route, mount: before });
      continue;
    }
    const mount = { pattern: joined(before.pattern, patternOf(layer)), layers: [...before.layers, layer] };
    const inner = handle === sought.middleware ? undefined : stackOf(handle);
    if (inner !== undefined) collect(inner, sought, mount, found);
    else if (handle === sought.middleware) found.push({ pattern: mount.pattern, route: undefined, mount });
  }
}

function joined(before: string | undefined, pattern: string | undefined): string | undefined {
  return before === undefined || pattern === undefined ? undefined : before + pattern;
}

/** Whether a handle is that of an application in an application. */
function isMountedApp(handle: unknown): boolean {
  return typeof handle === 'function' && handle.name === 'mounted_app';
}

/** Where an application may be mounted in others. Express hides which one a layer mounts, so some of these are others' mounts. */
function mountsOf(app: Application): readonly Mount[] {
  const { parent } = app;
  if (parent === undefined) return [{ pattern: '', layers: [] }];
  const layers = (routerOf(parent)?.stack ?? []).filter(({ handle }) => isMountedApp(handle));
  return mountsOf(parent).flatMap((outer) =>
    layers.map((layer) => ({
      pattern: joined(outer.pattern, patternOf(layer)),
      layers: [...outer.layers, layer],
    })),
  );
}

function registrationsOf(app: Application, sought: Sought): readonly Registration[] {
  const found: Registration[] = [];
  for (const mount of mountsOf(app)) collect(routerOf(app)?.stack ?? [], sought, mount, found);
  return found;
}

/** Whether a request that has passed a mount has this as its `baseUrl`. */
function leadsTo({ pattern, layers }: Mount, base: string): boolean {
  if (pattern?.toLowerCase() === base.toLowerCase()) return true;
  let rest = base;
  for (const layer of layers) {
    // In older versions a layer remembers what it matched, for its router.
    const copy: Layer = Object.create(layer);
    const matched = copy.match?.(rest) ?? false;
    if (matched === false) return false;
    rest = rest.slice((matched === true ? copy : matched).path?.length);
  }
  return rest === '';
}

/** The registration that a request has come through. */
function passedBy(request: Request, all: readonly Registration[]): Registration | undefined {
  const base = request.baseUrl ?? '';
  const passed = (registration: Registration): boolean => leadsTo(registration.mount, base);
  return (
    all.find((one) => one.route !== undefined && one.route === request.route && passed(one)) ??
    all.find((one) => one.route === undefined && passed(one))
  );
}

/** Finds the place of one middleware. Its registrations are collected again for a request that came through none of them. */
function placeFinder(middleware: () => unknown): (request: Request) => string | Unrouted {
  const known = new WeakMap<object, readonly Registration[]>();

  function find(app: Application & object, request: Request): Registration | undefined {
    const before = passedBy(request, known.get(app) ?? []);
    if (before !== undefined) return before;
    const all = registrationsOf(app, { middleware: middleware() });
    known.set(app, all);
    // Another function may call it, at a route.
    return passedBy(request, all) ?? passedBy(request, registrationsOf(app, { route: request.route }));
  }

  return (request) => {
    const app = request.app as (Application & object) | undefined;
    const pattern = app === undefined ? undefined : find(app, request)?.pattern;
    return pattern ?? new Unrouted('', app);
  };
}
