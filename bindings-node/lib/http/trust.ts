// Whom frameworks were told to trust with a client's address.

/** A framework's own setting of trusted proxies. */
export interface Trust {
  /** How the setting is called. */
  readonly setting: string;
  readonly value: unknown;
}

/** What Express was told. */
export function expressTrust(request: object): Trust {
  const { app } = request as { app?: { get?(name: string): unknown } };
  return { setting: "the setting 'trust proxy'", value: app?.get?.('trust proxy') };
}

const told = new WeakMap<object, unknown>();

/** What Fastify was told. It keeps that to itself, under a symbol. */
export function fastifyTrust({ server }: { readonly server: object }): Trust {
  if (!told.has(server)) told.set(server, (optionsOf(server) as { trustProxy?: unknown } | undefined)?.trustProxy);
  return { setting: 'trustProxy', value: told.get(server) };
}

function optionsOf(server: object): unknown {
  for (let owner: object | null = server; owner !== null; owner = Object.getPrototypeOf(owner)) {
    const symbol = Object.getOwnPropertySymbols(owner).find(({ description }) => description === 'fastify.options');
    if (symbol !== undefined) return (owner as Record<symbol, unknown>)[symbol];
  }
  return undefined;
}
