// Whom frameworks were told to trust with a client's address.

/** A framework's own setting of trusted proxies. */
export interface ProxyTrust<Request> {
  /** How the setting is called. */
  readonly setting: string;
  of(request: Request): unknown;
}

/** What Express was told. */
export const expressTrust: ProxyTrust<object> = {
  setting: "the setting 'trust proxy'",
  // As it stands, not through `app.get`: it is read with every request.
  of: (request) => (request as { app?: { settings?: Record<string, unknown> } }).app?.settings?.['trust proxy'],
};

const told = new WeakMap<object, unknown>();

/** What Fastify was told. It keeps that to itself, under a symbol. */
export const fastifyTrust: ProxyTrust<{ readonly server: object }> = {
  setting: 'trustProxy',
  of({ server }) {
    if (!told.has(server)) told.set(server, (optionsOf(server) as { trustProxy?: unknown } | undefined)?.trustProxy);
    return told.get(server);
  },
};

function optionsOf(server: object): unknown {
  for (let owner: object | null = server; owner !== null; owner = Object.getPrototypeOf(owner)) {
    const symbol = Object.getOwnPropertySymbols(owner).find(({ description }) => description === 'fastify.options');
    if (symbol !== undefined) return (owner as Record<symbol, unknown>)[symbol];
  }
  return undefined;
}
