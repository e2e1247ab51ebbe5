import { once } from 'node:events';
import { promisify } from 'node:util';

/** A listening server: its URL, and how to close it. */
export async function listening(server) {
  if (!server.listening) await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** How many clients are connected. */
    connections: promisify(server.getConnections.bind(server)),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
