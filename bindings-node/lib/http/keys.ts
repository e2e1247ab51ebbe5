// The keys of requests: the helpers that derive one, and the checks of the results of key functions.

import { ConfigError, checkConstant, checkText, describe, type ErrorValue, KeyInvalid, thrown } from '../errors.js';
import { checkOptions } from '../given-options.js';
import { kept } from '../kept.js';
import { type binding, native, unwrap } from '../native.js';
import { emitWarning } from '../store-changes.js';
import type { Awaitable, RequestAdapter } from './adapter.js';
import { type TrustFunction, trustsStrangers, untrustedSender } from './proxy-trust.js';

/** A function that derives a key from a request. */
export type KeyFunction<Request> = (request: Request) => Awaitable<string | number | bigint>;

/** The options for the address of a client. */
export interface ClientIpOptions {
  /**
   * The proxies with a trusted X-Forwarded-For: addresses (`10.0.0.7`), networks (`10.0.0.0/8`), `loopback`,
   * `linklocal`, `uniquelocal`, or `unix` for a Unix domain socket. Default: none.
   *
   * Or the number of proxies between the clients and this server. The client is then that entry of X-Forwarded-For,
   * counted from the right, or the first entry if there are fewer. 0 is the address of the connection itself.
   *
   * A request came through a Unix domain socket only if the address of the server is one. Any other request without a
   * client's address throws KeyInvalid, because a connection that was reset has no address any more.
   */
  trustedProxies?: readonly string[] | number | undefined;
  /**
   * All IPv6 addresses with the same first bits are one client. This is the number of those bits. Default 64.
   *
   * An IPv6 address that carries an IPv4 address (NAT64, mapped, translated, compatible, Teredo) is that IPv4 client. A
   * 6to4 address counts as its /48, and an ISATAP address as any other.
   */
  ipv6Prefix?: number | undefined;
}

/** The helpers of one framework. You can give their result as `key`, or call it with a request. */
export interface Keys<Request> {
  /** The client's address. This is the default. */
  clientIp(options?: ClientIpOptions): (request: Request) => string;
  /**
   * The value of a header, hashed before it is stored. A request without it is limited by its address. Without `options`
   * the address is read with the `clientIp` options of the layer's key, or else with those of an earlier middleware.
   */
  header(name: string, options?: ClientIpOptions): (request: Request) => string;
  /** The user that the application has authenticated, by `id`, `sub` or `username`. Others are limited by address. */
  user(options?: ClientIpOptions): (request: Request) => string;
  /** A claim of a token that the application has verified. A request without it is limited by address. */
  claim(name: string, options?: ClientIpOptions): (request: Request) => string;
  /** One budget for all clients, under this key. */
  fixed(name: string): (request: Request) => string;
}

/** The options by which a key reads addresses. `within` makes the same key with the options of a layer as defaults. */
interface AddressOptions {
  readonly options: ClientIpOptions | undefined;
  readonly within?: (layer: ClientIpOptions) => unknown;
}

/** The address options by key function, for the functions that a helper has made. */
const addressOptions = new WeakMap<object, AddressOptions>();

/** Returns the options by which a key reads addresses. Undefined if it has none. */
export function addressesOf(key: object | undefined): ClientIpOptions | undefined {
  return key === undefined ? undefined : addressOptions.get(key)?.options;
}

/** Returns a key for a layer with these address options. The options of the key itself come first. */
function keyWithin<Request>(key: KeyFunction<Request>, layer: ClientIpOptions | undefined): KeyFunction<Request> {
  const within = layer === undefined ? undefined : addressOptions.get(key)?.within;
  return within === undefined ? key : (within(layer as ClientIpOptions) as KeyFunction<Request>);
}

/** The property with the address options of the middleware that a request has passed. All copies of this module share the symbol. */
const ADDRESS = Symbol.for('tidegate.address');

/** Remembers the address options of a layer, for keys of limits that the request meets later. */
export function rememberAddresses(memory: object, layer: ClientIpOptions): void {
  (memory as { [ADDRESS]?: ClientIpOptions })[ADDRESS] = layer;
}

/** The most addresses to remember with their keys. A client that stays connected needs its key with each request. */
const MAX_ADDRESSES = 1024;
/** A token of RFC 9110. No request has a header of another name. */
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const USER_FIELDS = ['id', 'sub', 'username'] as const;

/** Returns the helpers for the requests of a framework. */
export function keysOf<Request>(adapter: RequestAdapter<Request>): Keys<Request> {
  function clientIp(options: ClientIpOptions = {}): (request: Request) => string {
    const { trustedProxies, ipv6Prefix } = checkClientIp(options, adapter.name);
    const trusts = trustedProxies === undefined ? adapter.trusts : undefined;
    let address = addressOf(adapter, trustedProxies ?? [], ipv6Prefix);
    // The framework's setting that `address` was made from.
    let applied: unknown;
    const key = named('clientIp', (request: Request) => {
      const value = trusts?.of(request);
      if (trusts !== undefined && value !== applied) {
        address = addressOf(adapter, proxies(value, trusts.setting, adapter.name), ipv6Prefix);
        applied = value;
      }
      return address(request);
    });
    addressOptions.set(key, { options });
    return key;
  }

  function orAnonymous(
    name: string,
    options: ClientIpOptions | undefined,
    known: (request: Request) => string | undefined,
    layer?: ClientIpOptions,
  ): (request: Request) => string {
    if (options !== undefined) checkClientIp(options, adapter.name);
    const address = clientIp({ ...layer, ...options });
    // The keys by the options of an earlier middleware, which apply if no layer has given its own.
    const passed = new WeakMap<object, (request: Request) => string>();
    const addressIn = (request: Request): string => {
      const before = layer ?? (adapter.memory(request) as { [ADDRESS]?: ClientIpOptions })[ADDRESS];
      if (before === layer || before === undefined) return address(request);
      return kept(passed, before, () => clientIp({ ...before, ...options }))(request);
    };
    const key = named(name, (request: Request) => known(request) ?? native.anonymous(addressIn(request)));
    const within = (layer: ClientIpOptions) => orAnonymous(name, options, known, layer);
    addressOptions.set(key, { options, ...(layer === undefined && { within }) });
    return key;
  }

  const keys: Keys<Request> = {
    clientIp,
    header(name, options) {
      if (typeof name !== 'string' || !FIELD_NAME.test(name)) {
        throw new ConfigError(`header() needs the name of a header, such as 'X-API-Key', not ${describe(name)}`);
      }
      return orAnonymous(`header(${JSON.stringify(name)})`, options, (request) => {
        const value = adapter.header(request, name);
        if (value === undefined || value === '') return undefined;
        return native.hashed(checkText(value, `the header ${name}`, KeyInvalid));
      });
    },
    user(options) {
      return orAnonymous('user()', options, (request) => {
        const user = adapter.user(request);
        if (typeof user !== 'object' || user === null) return nameOf(user);
        const fields = user as Record<string, unknown>;
        const field = USER_FIELDS.find((field) => text(fields[field]) !== undefined);
        if (field !== undefined) return nameOf(fields[field]);
        throw new KeyInvalid(
          `user() found a user without ${USER_FIELDS.join(', ')}: give a function instead, such as (request) => …`,
        );
      });
    },
    claim(name, options) {
      if (typeof name !== 'string' || name === '') {
        throw new ConfigError(`claim() needs the name of a claim, such as 'sub', not ${describe(name)}`);
      }
      return orAnonymous(`claim(${JSON.stringify(name)})`, options, (request) => {
        const claims = adapter.claims(request);
        if (typeof claims !== 'object' || claims === null) return undefined;
        const value = (claims as Record<string, unknown>)[name];
        if (value === undefined || value === null || value === '') return undefined;
        const known = nameOf(value);
        if (known !== undefined) return known;
        throw new KeyInvalid(`the claim ${JSON.stringify(name)} is neither text nor a number, so it cannot be a key`);
      });
    },
    fixed(name) {
      if (typeof name !== 'string')
        throw new ConfigError(`fixed() takes a text, as in fixed('all'), not ${describe(name)}`);
      checkConstant(name, 'a key');
      return named(`fixed(${JSON.stringify(name)})`, () => name);
    },
  };
  for (const helper of Object.values(keys)) helpers.add(helper);
  return keys;
}

/** The helpers themselves. They are no key functions, but they return one. */
const helpers = new WeakSet<object>();

function checkClientIp(given: ClientIpOptions, adapter: string): ClientIpOptions {
  const options = checkOptions(given, ['trustedProxies', 'ipv6Prefix'], `${adapter}: clientIp`);
  const { trustedProxies, ipv6Prefix } = options;
  if (ipv6Prefix !== undefined && typeof ipv6Prefix !== 'number') {
    throw new ConfigError(
      `${adapter}: clientIp: ipv6Prefix is ${describe(ipv6Prefix)}: it must be a whole number of bits from 1 to 128`,
    );
  }
  const named = Array.isArray(trustedProxies) && trustedProxies.every((proxy) => typeof proxy === 'string');
  if (trustedProxies !== undefined && typeof trustedProxies !== 'number' && !named) {
    throw trustsAnyClient(`trustedProxies: ${describe(trustedProxies)}`, adapter);
  }
  return options;
}

/** Returns a function that derives the address of a client. It remembers those that depend on the peer alone. */
function addressOf<Request>(
  adapter: RequestAdapter<Request>,
  trusted: readonly string[] | number | TrustFunction,
  ipv6Prefix: number | undefined,
): (request: Request) => string {
  const trust = typeof trusted === 'function' ? trusted : undefined;
  const client = unwrap(
    native.clientIp(typeof trusted === 'function' ? [] : (trusted as string[] | number), ipv6Prefix),
  );
  const readsForwarded = trust !== undefined || client.readsForwarded();
  const known = new Map<string, string>();
  return (request) => {
    const peer = adapter.peer(request);
    const forwarded = readsForwarded ? adapter.header(request, 'x-forwarded-for') : undefined;
    if (peer === undefined || peer === '') {
      const missing = adapter.withoutPeer?.(request);
      if (missing !== undefined) {
        // A number of proxies is trusted for any connection.
        const counted = typeof trusted === 'number' && forwarded !== undefined;
        const key = counted ? keyOrThrow(client.key(UNKNOWN, [forwarded], false)) : UNKNOWN;
        if (key === UNKNOWN) throw missing;
        return key;
      }
      return keyWithoutPeer(client, trust === undefined ? forwarded : undefined, adapter.overUnix(request));
    }
    if (trust !== undefined) return keyOrThrow(client.key(untrustedSender(trust, peer, forwarded), [], false));
    if (forwarded !== undefined) return keyOrThrow(client.key(peer, [forwarded], false));
    let key = known.get(peer);
    if (key === undefined) {
      key = keyOrThrow(client.key(peer, [], false));
      if (known.size >= MAX_ADDRESSES) known.clear();
      known.set(peer, key);
    }
    return key;
  };
}

/** The key of a client without a readable address. */
const UNKNOWN = 'unknown';

function keyOrThrow(key: string | ErrorValue): string {
  if (typeof key === 'string') return key;
  throw thrown(key);
}

/** True if a refusal of a request without an address was reported. A client may reset as many connections as it likes. */
let missingPeerReported = false;

function keyWithoutPeer(client: binding.ClientIp, forwarded: string | undefined, unix: boolean): string {
  const key = client.key(undefined, forwarded === undefined ? [] : [forwarded], unix);
  if (typeof key !== 'string' && !missingPeerReported) {
    missingPeerReported = true;
    emitWarning(`a request was refused, and so are all others like it: ${key.message}`);
  }
  return keyOrThrow(key);
}

/** Returns the proxies in a framework's setting. Throws if it trusts every client, which could then choose its address. */
function proxies(value: unknown, setting: string, adapter: string): readonly string[] | number | TrustFunction {
  if (value === undefined || value === false || value === null) return [];
  if (typeof value === 'string') return value.split(',');
  if (typeof value === 'number') return value;
  if (Array.isArray(value) && value.every((proxy) => typeof proxy === 'string')) return value;
  if (typeof value === 'function' && !trustsStrangers(value as TrustFunction)) return value as TrustFunction;
  throw trustsAnyClient(`${setting} is ${describe(value)}`, adapter);
}

function trustsAnyClient(what: string, adapter: string): ConfigError {
  return new ConfigError(
    `${adapter}: ${what}, which names no proxy: anyone could choose the address they are limited by. Name the proxies, ` +
      `as in clientIp({ trustedProxies: ['10.0.0.0/8'] }), or say how many there are`,
  );
}

function text(value: unknown): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value;
  return typeof value === 'bigint' || Number.isFinite(value) ? String(value) : undefined;
}

/** Matches a name that the core may mark, because it reads like another key. Most names do not match and need no call. */
const MAY_BE_MARKED = /:|^[\d.]+(?:\/\d+)?$|^un/;

/** Returns the key of a name that its owner may have chosen. */
function nameOf(value: unknown): string | undefined {
  const name = text(value);
  if (name === undefined || !MAY_BE_MARKED.test(name)) return name;
  return native.named(checkText(name, 'the name of a user', KeyInvalid));
}

function named<F extends object>(name: string, key: F): F {
  return Object.defineProperty(key, 'name', { value: name });
}

/** Returns the function for the key of each request. It throws if a key function returns something that cannot be a key. */
export function keyOf<Request>(
  option: KeyFunction<Request>,
  where: string,
  layer?: ClientIpOptions,
): (request: Request) => Awaitable<string> {
  if (typeof option === 'string') {
    throw new ConfigError(
      `${where}: key is the text ${describe(option)}, which would be one budget for everybody: write key: ` +
        `fixed(${describe(option)}) if that is meant; else give a function of the request, or a helper such as clientIp()`,
    );
  }
  if (typeof option !== 'function') {
    throw new ConfigError(`${where}: key is ${describe(option)}: give a function of the request, or fixed('all')`);
  }
  if (helpers.has(option)) {
    throw new ConfigError(`${where}: key is the helper ${option.name} itself: call it, as in key: ${option.name}(…)`);
  }
  const fail = (value: unknown): never => {
    const name = option.name === '' || option.name === 'key' ? 'the function' : `the function ${option.name}`;
    throw new KeyInvalid(
      `${where}: ${name} given as key returned ${describe(value)}, which cannot be a key: return a text for every request, or leave ` +
        'out requests with skip',
    );
  };
  const checked = (value: unknown): string => text(value) ?? fail(value);
  const keyed = keyWithin(option, layer);
  return (request) => {
    const key: unknown = keyed(request);
    return key instanceof Promise ? key.then(checked) : checked(key);
  };
}
