// Reads from a framework the proxies that it trusts with the address of a client.

import { isIP } from 'node:net';

/** A framework's own setting of trusted proxies. */
export interface ProxyTrust<Request> {
  /** The name of the setting, for messages. */
  readonly setting: string;
  of(request: Request): unknown;
}

/** Express' setting. */
export const expressTrust: ProxyTrust<object> = {
  setting: "the setting 'trust proxy'",
  // Not through `app.get`, because it is read with every request.
  of: (request) => (request as { app?: { settings?: Record<string, unknown> } }).app?.settings?.['trust proxy'],
};

/** Returns true if the address is that of a proxy. `hop` counts the proxies between it and this server. */
export type TrustFunction = (address: string, hop: number) => boolean;

/** Addresses of no proxy, and more hops than any service has. */
const STRANGERS = ['203.0.113.7', '198.51.100.7', '8.8.8.8', '2001:db8::7', '2606:4700:4700::1111'];
const TOO_MANY_HOPS = 1000;

/** True if the function would believe every client. */
export function trustsStrangers(trust: TrustFunction): boolean {
  return STRANGERS.every((address) => trust(address, TOO_MANY_HOPS));
}

/** Returns the address of the first sender, from this server on, that is not trusted. It stops at an entry that is no address. */
export function untrustedSender(trust: TrustFunction, peer: string, forwarded: string | undefined): string {
  const senders = forwarded === undefined ? [] : forwarded.split(',');
  let sender = peer;
  for (let hop = 0; trust(sender, hop); hop++) {
    const next = senders.pop()?.trim();
    if (next === undefined || isIP(next) === 0) break;
    sender = next;
  }
  return sender;
}

const knownSettings = new WeakMap<object, unknown>();

/** Fastify's setting, which it keeps under a private symbol. */
export const fastifyTrust: ProxyTrust<{ readonly server: object }> = {
  setting: 'trustProxy',
  of({ server }) {
    if (!knownSettings.has(server)) {
      knownSettings.set(server, (optionsOf(server) as { trustProxy?: unknown } | undefined)?.trustProxy);
    }
    return knownSettings.get(server);
  },
};

function optionsOf(server: object): unknown {
  for (let owner: object | null = server; owner !== null; owner = Object.getPrototypeOf(owner)) {
    const symbol = Object.getOwnPropertySymbols(owner).find(({ description }) => description === 'fastify.options');
    if (symbol !== undefined) return (owner as Record<symbol, unknown>)[symbol];
  }
  return undefined;
}
