import { once } from 'node:events';
import { promisify } from 'node:util';

/** A listening server: its URL, and a function that closes it. */
export async function listening(server) {
  if (!server.listening) await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** The number of connected clients. */
    connections: promisify(server.getConnections.bind(server)),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
