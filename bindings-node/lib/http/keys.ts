// Who is limited: the helpers that name a client, and what every function that names one must answer.

import { ConfigError, KeyInvalid } from '../errors.js';
import { native, unwrap } from '../native.js';
import type { RequestAdapter } from './request-adapter.js';

/** What may be given now or later. */
export type Awaitable<T> = T | Promise<T>;

/** A function that names who is limited. */
export type KeyFunction<Request> = (request: Request) => Awaitable<string | number | bigint>;

/** Who is limited: a function of the request, or one text for everybody. */
export type KeyOption<Request> = string | KeyFunction<Request>;

/** How the address of a client is found. */
export interface ClientIpOptions {
  /**
   * The proxies whose X-Forwarded-For is believed: addresses (`10.0.0.7`), networks (`10.0.0.0/8`), `loopback`, `linklocal`,
   * `uniquelocal`, or `unix` for a Unix domain socket. Nobody, when not said.
   */
  trustedProxies?: readonly string[];
  /** All IPv6 addresses that begin with the same bits are one client. Default 64. */
  ipv6Prefix?: number;
}

/** The helpers of one framework. What they return can be given as `key`, or called with a request. */
export interface Keys<Request> {
  /** The client's address. The default. */
  clientIp(options?: ClientIpOptions): (request: Request) => string;
  /** What a header says, hashed before it is stored. Who sends none is limited by address. */
  header(name: string, options?: ClientIpOptions): (request: Request) => string;
  /** The user whom the application has authenticated, by `id`, `sub` or `username`. Others are limited by address. */
  user(options?: ClientIpOptions): (request: Request) => string;
  /** A claim of a token that the application has verified. Who has none is limited by address. */
  claim(name: string, options?: ClientIpOptions): (request: Request) => string;
}

/** Addresses whose keys are remembered: of a peer that stays connected the key is asked for with each request. */
const REMEMBERED = 1024;
const USER_FIELDS = ['id', 'sub', 'username'] as const;

/** The helpers for the requests of a framework. */
export function keysOf<Request>(adapter: RequestAdapter<Request>): Keys<Request> {
  function clientIp(options: ClientIpOptions = {}): (request: Request) => string {
    const { trustedProxies, ipv6Prefix } = checked(options, adapter.name);
    const trusts = trustedProxies === undefined ? adapter.trusts : undefined;
    let address = addressOf(adapter, trustedProxies ?? [], ipv6Prefix);
    // The framework's setting as it was when `address` was made of it.
    let made: unknown;
    return named('clientIp', (request) => {
      if (trusts !== undefined) {
        const value = trusts.of(request);
        if (value !== made) {
          address = addressOf(adapter, proxies(value, trusts.setting, adapter.name), ipv6Prefix);
          made = value;
        }
      }
      return address(request);
    });
  }

  function orAnonymous(
    name: string,
    options: ClientIpOptions | undefined,
    known: (request: Request) => string | undefined,
  ): (request: Request) => string {
    const address = clientIp(options);
    return named(name, (request) => known(request) ?? native.anonymous(address(request)));
  }

  return {
    clientIp,
    header(name, options) {
      if (typeof name !== 'string' || name === '') throw new ConfigError('header() needs the name of a header');
      return orAnonymous(`header(${JSON.stringify(name)})`, options, (request) => {
        const value = adapter.header(request, name);
        return value === undefined || value === '' ? undefined : native.hashed(value);
      });
    },
    user(options) {
      return orAnonymous('user()', options, (request) => {
        const user = adapter.user(request);
        if (typeof user !== 'object' || user === null) return text(user);
        const fields = user as Record<string, unknown>;
        const field = USER_FIELDS.find((field) => text(fields[field]) !== undefined);
        if (field !== undefined) return text(fields[field]);
        throw new KeyInvalid(
          `user() found a user without ${USER_FIELDS.join(', ')}: give a function instead, such as (request) => …`,
        );
      });
    },
    claim(name, options) {
      if (typeof name !== 'string' || name === '') throw new ConfigError('claim() needs the name of a claim');
      return orAnonymous(`claim(${JSON.stringify(name)})`, options, (request) => {
        const claims = adapter.claims(request);
        if (typeof claims !== 'object' || claims === null) return undefined;
        const value = (claims as Record<string, unknown>)[name];
        if (value === undefined || value === null || value === '') return undefined;
        const known = text(value);
        if (known !== undefined) return known;
        throw new KeyInvalid(`the claim ${JSON.stringify(name)} is no text and no number: it cannot be a key`);
      });
    },
  };
}

function checked(options: ClientIpOptions, adapter: string): ClientIpOptions {
  if (options.trustedProxies !== undefined && !Array.isArray(options.trustedProxies)) {
    throw anyone(`trustedProxies: ${shown(options.trustedProxies)}`, adapter);
  }
  return options;
}

/** The address of a client, remembered where nothing but the peer matters. */
function addressOf<Request>(
  adapter: RequestAdapter<Request>,
  trusted: readonly string[],
  ipv6Prefix: number | undefined,
): (request: Request) => string {
  const client = unwrap(native.clientIp([...trusted], ipv6Prefix));
  const believes = client.readsForwarded();
  const known = new Map<string | undefined, string>();
  return (request) => {
    const peer = adapter.peer(request);
    const line = believes ? adapter.header(request, 'x-forwarded-for') : undefined;
    if (line !== undefined) return client.key(peer, [line]);
    let key = known.get(peer);
    if (key === undefined) {
      key = client.key(peer, []);
      if (known.size >= REMEMBERED) known.clear();
      known.set(peer, key);
    }
    return key;
  };
}

/** The proxies that a framework's setting names. One that names none would let anyone choose an address. */
function proxies(value: unknown, setting: string, adapter: string): readonly string[] {
  if (value === undefined || value === false || value === null) return [];
  if (typeof value === 'string') return value.split(',');
  if (Array.isArray(value) && value.every((proxy) => typeof proxy === 'string')) return value;
  throw anyone(`${setting} is ${shown(value)}`, adapter);
}

function anyone(what: string, adapter: string): ConfigError {
  return new ConfigError(
    `${adapter}: ${what}, which names no proxy: anyone could choose the address they are limited by. Name the proxies, ` +
      `as in clientIp({ trustedProxies: ['10.0.0.0/8'] })`,
  );
}

function shown(value: unknown): string {
  return typeof value === 'object' && value !== null ? (JSON.stringify(value) ?? 'an object') : String(value);
}

function text(value: unknown): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value;
  return typeof value === 'bigint' || Number.isFinite(value) ? String(value) : undefined;
}

function named<F extends object>(name: string, key: F): F {
  return Object.defineProperty(key, 'name', { value: name });
}

/** A function that names who is limited, and complains when it names nobody. */
export function keyOf<Request>(option: KeyOption<Request>, where: string): (request: Request) => Awaitable<string> {
  if (typeof option === 'string') return () => option;
  if (typeof option !== 'function') {
    throw new ConfigError(`${where}: key is ${shown(option)}: give a function of the request, or a text`);
  }
  const complain = (value: unknown): never => {
    const name = option.name === '' || option.name === 'key' ? 'the function' : `the function ${option.name}`;
    throw new KeyInvalid(
      `${where}: ${name} given as key returned ${shown(value)}, which names nobody: return a text for every request, or leave ` +
        'out requests with skip',
    );
  };
  const checked = (value: unknown): string => text(value) ?? complain(value);
  return (request) => {
    const key: unknown = option(request);
    return key instanceof Promise ? key.then(checked) : checked(key);
  };
}
