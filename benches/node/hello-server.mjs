// The server that calls go out to in `make bench`: it answers each request with a few bytes, and prints its port.

import { createServer } from 'node:http';
import process from 'node:process';

const server = createServer((_request, response) => {
  response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': 5 }).end('hello');
});
// Connections stay open while a client is measured.
server.keepAliveTimeout = 0;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
// It ends with what has started it.
process.stdin.on('end', () => process.exit()).resume();
