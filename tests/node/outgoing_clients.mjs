// The clients of `outgoing_clients.test.mjs`, behind one interface, and the servers that they call.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach } from 'node:test';
import axios from 'axios';
import { Limiter, ManualClock } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';
import { paced } from 'tidegate/undici';

/** The response of `fetch`, or of a client that imitates it. */
function ofFetch(response) {
  return {
    status: response.status,
    url: response.url,
    header: (name) => response.headers.get(name),
    text: () => response.text(),
    chunks: () => response.body[Symbol.asyncIterator](),
    giveUp: () => response.body.cancel(),
  };
}

const fetchClient = {
  name: 'fetch',
  make(options) {
    const fetch = pacedFetch(options);
    return { call: async (url, init) => ofFetch(await fetch(url, init)), close: () => {} };
  },
};

const axiosClient = {
  name: 'axios',
  make(options) {
    const client = axios.create({ adapter: 'fetch', env: { fetch: pacedFetch(options), Request: null } });
    return {
      call: async (url, { body: data, ...init } = {}) => {
        const response = await client.request({ url, data, ...init, responseType: 'stream', validateStatus: null });
        const { status, headers, data: stream } = response;
        // A response without a body has no stream.
        const body = new Response(stream ?? null, { headers: Object.fromEntries(Object.entries(headers)) });
        return { ...ofFetch(body), status, url: undefined };
      },
      close: () => {},
    };
  },
};

function undiciClient(name, { Agent, interceptors, request }) {
  return {
    name,
    make(options) {
      const agent = new Agent();
      const dispatcher = agent.compose(paced(options), interceptors.redirect({ maxRedirections: 20 }));
      return {
        call: async (url, { body, ...init } = {}) => {
          const sent = body instanceof ReadableStream ? Readable.fromWeb(body) : body;
          const answer = await request(url, { ...init, body: sent, dispatcher });
          const { statusCode: status, headers, body: stream, context } = answer;
          return {
            status,
            url: String(context?.history?.at(-1) ?? url),
            header: (field) => headers[field] ?? null,
            text: () => stream.text(),
            chunks: () => stream[Symbol.asyncIterator](),
            giveUp: () => stream.on('error', () => {}).destroy(),
          };
        },
        close: () => agent.destroy(),
      };
    },
  };
}

export const clients = [fetchClient, axiosClient, undiciClient('undici 7', await import('undici'))];
// undici 8 needs a newer Node than Tidegate.
const [major, minor] = process.versions.node.split('.').map(Number);
if (major > 22 || (major === 22 && minor >= 19)) clients.push(undiciClient('undici 8', await import('undici8')));

/** A server that answers with a function, and records its requests. */
export class Site {
  /** The requests, as `GET /path`. */
  asked = [];
  requests = [];

  static async start(answer = (_, response) => response.end('hello')) {
    const site = new Site();
    site.server = createServer(async (request, response) => {
      const body = request.headers['x-unread'] ? '' : await text(request).catch(() => 'broken');
      const { method, url, headers } = request;
      site.asked.push(`${method} ${url}`);
      site.requests.push({ method, url, headers, body });
      await answer(request, response, site);
    });
    site.server.listen(0, '127.0.0.1');
    await once(site.server, 'listening');
    site.origin = `http://127.0.0.1:${site.server.address().port}`;
    return site;
  }

  close() {
    this.server.closeAllConnections();
    return new Promise((resolve) => this.server.close(resolve));
  }
}

/** A limiter in memory, with a clock that stands still. */
export function limiterAt(options = {}) {
  const clock = new ManualClock();
  return { clock, limiter: new Limiter({ clock, ...options }) };
}

/** The rest of a limit for calls that go out. */
export async function leftOf(limiter, policy, key, cost = 1) {
  const { limits } = await limiter.peek(limiter.policy(policy).paced(), key, { cost });
  return limits.map(({ remaining }) => remaining);
}

/** The number of calls that go out and wait for a key. */
export function waitingOf(limiter, policy, key) {
  return limiter.waiting(limiter.policy(policy).paced(), key);
}

/** Waits until something holds, a few milliseconds at a time. */
export async function until(holds) {
  for (let round = 0; round < 10_000; round++) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`it never held: ${holds}`);
}

/** The original of an error that a client wrapped. */
export function unwrapped(error) {
  return error?.isAxiosError && error.cause ? unwrapped(error.cause) : error;
}

/** Servers, and clients of one kind. Each test closes them at its end. `defaults` are options of the clients. */
export function opened(kind, defaults = {}) {
  const open = [];
  const kept = (one) => {
    open.push(one);
    return one;
  };
  afterEach(async () => {
    for (const one of open.splice(0).reverse()) await one.close();
  });
  return {
    site: async (answer) => kept(await Site.start(answer)),
    make: (options) => kept(kind.make({ ...defaults, ...options })),
  };
}
