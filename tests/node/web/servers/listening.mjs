import { once } from 'node:events';

/** A server that listens, as tests use one. */
export async function listening(server) {
  if (!server.listening) await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
