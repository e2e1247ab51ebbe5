// Which proxies an application has told its framework to trust with a client's address.

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
