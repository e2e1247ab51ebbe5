// Servers of both versions of the MCP SDK with the same limited tools, over streamable HTTP, or as a program over stdio:
//
//     node mcp_server.mjs 1 [STORE]

import { once } from 'node:events';
import { createServer } from 'node:http';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport as Stdio1 } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport as Http1 } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import { StdioServerTransport as Stdio2 } from '@modelcontextprotocol/server/stdio';
import { Limiter, ManualClock } from 'tidegate';
import { limited } from 'tidegate/mcp';
import { z } from 'zod';

const SDKS = {
  1: { McpServer: McpServer1, Stdio: Stdio1, Http: Http1 },
  2: { McpServer: McpServer2, Stdio: Stdio2, Http: NodeStreamableHTTPServerTransport },
};

const policies = {
  calls: 'fixed-window 2/minute',
  rows: 'fixed-window 10/minute',
  slow: 'concurrency 1',
  count: 'fixed-window 1234/hour',
};

/** A limiter with a manual clock, or with a store that processes share. */
export const limiting = (store) =>
  store === undefined
    ? new Limiter({ policies, clock: new ManualClock() })
    : new Limiter({ policies, store, timeoutMs: 20_000 });

const text = (said) => ({ content: [{ type: 'text', text: said }] });

/** A server with tools. `waiting` has the calls of the slow one. */
export function serverOf(version, options, waiting = []) {
  const server = new SDKS[version].McpServer({ name: 'tools', version: '1.0.0' });
  const limit = () =>
    limited(server, {
      tools: {
        echo: 'calls',
        export: { policy: 'rows', cost: ({ args }) => args.rows },
        slow: 'slow',
        count: 'count',
        finish: false,
      },
      ...options,
    });
  // Before its tools, or behind them.
  if (version === 1) limit();
  server.registerTool('echo', { inputSchema: z.object({ said: z.string() }) }, async ({ said }) => text(said));
  server.registerTool('export', { inputSchema: z.object({ rows: z.number() }) }, async ({ rows }) => text(`${rows}`));
  server.registerTool('slow', {}, () => new Promise((resolve) => waiting.push(() => resolve(text('done')))));
  server.registerTool('count', {}, async () => text('counted'));
  server.registerTool('finish', {}, async () => {
    for (const finish of waiting.splice(0)) finish();
    return text('finished');
  });
  if (version === 2) limit();
  return server;
}

/** Serves over streamable HTTP, with a session for each client. The application authenticates by the field `x-client`. */
export async function servingHttp(version, options) {
  const transports = new Map();
  const http = createServer(async (request, response) => {
    let transport = transports.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new SDKS[version].Http({
        sessionIdGenerator: () => crypto.randomUUID(),
        onsessioninitialized: (id) => transports.set(id, transport),
      });
      await serverOf(version, options).connect(transport);
    }
    const clientId = request.headers['x-client'];
    if (clientId !== undefined) request.auth = { clientId, token: 'secret', scopes: [] };
    await transport.handleRequest(request, response);
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const close = () => {
    http.closeAllConnections();
    http.close();
  };
  return { url: new URL(`http://127.0.0.1:${http.address().port}/mcp`), close };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const version = Number(process.argv[2]);
  await serverOf(version, { limiter: limiting(process.argv[3]) }).connect(new SDKS[version].Stdio());
}
