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
  // Express 5 gives each request its own object shape, and one more property would cost as much as everything else
  // here. So the admissions of a request are kept beside it. A getter on the prototype of all requests finds them.
  ...nodeRequestAdapter<Request>('tidegate/express'),
  memory: (request) => request.rawHeaders ?? request,
  trusts: expressTrust,
  setField: (response, name, value) => response.setHeader(name, value),
  setStatus: (response, status) => response.status(status),
  refuse(response, body, refused) {
    if (response.headersSent) return;
    // `send` would add a charset, and JSON has none.
    if (body === undefined) response.setHeader('Content-Type', MEDIA_TYPE).end(refused.problem());
    else response.send(body);
  },
};

/** Makes `request.rateLimit` return the Decision. */
function exposeDecision(request: Request, decision: Decision | undefined): void {
  const prototype = request.app === undefined ? undefined : commonPrototypeOf(request);
  if (prototype === undefined || Object.hasOwn(request, 'rateLimit')) {
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

/** Returns the prototype that the requests of all applications share, next to that of Node. Undefined for other requests. */
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

/** Returns a middleware that limits requests. */
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

// The rest of this file finds the place at which a middleware is registered. Express passes it the path of a request, which a
// client chooses, and not the pattern that matched. The routers keep the patterns in lists, and the middleware is searched there.

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
  /** True if the pattern matches every path. */
  readonly slash?: boolean;
  /** Returns the matched beginning of a path, or true in versions that set `path` instead. */
  match?(path: string): boolean | { readonly path?: string };
  readonly path?: string;
}

interface Router {
  readonly stack?: readonly Layer[];
}

interface Application {
  readonly parent?: Application;
  /** Express 5. */
  readonly router?: Router;
  /** Express 4, where reading `router` throws. */
  readonly _router?: Router;
}

/** A place at which a middleware or a route is registered. */
interface Registration {
  readonly route: Route | undefined;
  /** The layers of `use` that lead to it, from the outermost application on. */
  readonly layers: readonly Layer[];
  /** The pattern of the layers. `pattern` adds that of the route. Both are undefined if Express keeps no pattern. */
  readonly base: string | undefined;
  readonly pattern: string | undefined;
}

/** Returns the pattern of a layer of `use`. */
function patternOf(layer: Layer): string | undefined {
  if (layer.rawPath !== undefined) return patternText(layer.rawPath);
  if (layer.slash || layer.regexp?.fast_slash) return '';
  if (layer.regexp === undefined) return undefined;
  if (layer.regexp.fast_star) return '*';
  const plain = /^\^((?:\\\/[\w.~-]+)+)\\\/\?\(\?=\\\/\|\$\)$/.exec(layer.regexp.source);
  return plain?.[1] === undefined ? layer.regexp.source : plain[1].replaceAll('\\/', '/');
}

function layersOf(app: Application): readonly Layer[] {
  return ('_router' in app ? app._router : app.router)?.stack ?? [];
}

/** Returns the layers of a router, or of an application that was given to a router. */
function layersIn(handle: unknown): readonly Layer[] {
  if (typeof handle !== 'function') return [];
  const { stack, set, handle: handles } = handle as { stack?: unknown; set?: unknown; handle?: unknown };
  if (Array.isArray(stack)) return stack;
  return typeof set === 'function' && typeof handles === 'function' ? layersOf(handle as Application) : [];
}

/** Yields every registration of a middleware, or of a route, behind these layers of `use`. */
function* registrations(stack: readonly Layer[], sought: unknown, before: readonly Layer[]): Generator<Registration> {
  for (const layer of stack) {
    const { route, handle } = layer;
    const layers = route === undefined ? [...before, layer] : before;
    const isHere = handle === sought || route === sought || route?.stack.some((inner) => inner.handle === sought);
    if (isHere) {
      const patterns = layers.map(patternOf);
      const base = patterns.includes(undefined) ? undefined : patterns.join('');
      const pattern = base === undefined ? undefined : base + patternText(route?.path);
      yield { route, layers, base, pattern };
    } else if (route === undefined) yield* registrations(layersIn(handle), sought, layers);
  }
}

/** Returns the layers that may mount an application. Express hides which one a layer mounts, so some of them mount others. */
function mountsOf({ parent }: Application): readonly (readonly Layer[])[] {
  if (parent === undefined) return [[]];
  const mounts = layersOf(parent).filter(({ handle }) => typeof handle === 'function' && handle.name === 'mounted_app');
  return mountsOf(parent).flatMap((outer) => mounts.map((layer) => [...outer, layer]));
}

function registrationsOf(app: Application, sought: unknown): readonly Registration[] {
  if (sought === undefined) return [];
  return mountsOf(app).flatMap((mount) => Array.from(registrations(layersOf(app), sought, mount)));
}

/** True if a request has this `baseUrl` after the layers of the registration. */
function leadsTo({ base, layers }: Registration, baseUrl: string): boolean {
  if (base?.toLowerCase() === baseUrl.toLowerCase()) return true;
  let rest = baseUrl;
  for (const layer of layers) {
    // In older versions `match` writes its result into the layer, which the router reads. So this works on a copy.
    const copy: Layer = Object.create(layer);
    const matched = copy.match?.(rest) ?? false;
    if (matched === false) return false;
    rest = rest.slice((matched === true ? copy : matched).path?.length);
  }
  return rest === '';
}

/** Returns the registration that a request has come through. */
function passedBy({ baseUrl = '', route }: Request, all: readonly Registration[]): Registration | undefined {
  const passed = all.filter((one) => (one.route ?? route) === route && leadsTo(one, baseUrl));
  return passed.find((one) => one.route !== undefined) ?? passed[0];
}

/** Returns a function that finds the place of one middleware. It collects the registrations again for a request through none of them. */
function placeFinder(middleware: () => unknown): (request: Request) => string | Unrouted {
  const known = new WeakMap<object, readonly Registration[]>();
  return (request) => {
    const app = request.app as (Application & object) | undefined;
    if (app === undefined) return new Unrouted('');
    let passed = passedBy(request, known.get(app) ?? []);
    if (passed === undefined) {
      const all = registrationsOf(app, middleware());
      known.set(app, all);
      // Another function may call the middleware, at a route.
      passed = passedBy(request, all) ?? passedBy(request, registrationsOf(app, request.route));
    }
    return passed?.pattern ?? new Unrouted('', app);
  };
}
