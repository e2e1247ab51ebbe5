// `tidegate/fetch` beside the `fetch` that it wraps: servers get the same requests, and callers the same answers.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import { Limiter } from 'tidegate';
import { pacedFetch } from 'tidegate/fetch';
import { paced } from 'tidegate/undici';
import { leftOf, limiterAt, Site, until } from './outgoing_clients.mjs';

let here;
let there;
before(async () => {
  there = await Site.start();
  here = await Site.start((request, response, { origin }) => {
    const { pathname, searchParams } = new URL(request.url, origin);
    const [, status, count = '1'] = pathname.split('/');
    if (pathname === '/zipped') {
      response.setHeader('Content-Encoding', 'gzip');
      return response.end(gzipSync('hello'));
    }
    if (!/^\d+$/.test(status)) return response.end('hello');
    const to = searchParams.get('to') ?? (Number(count) > 1 ? `/${status}/${count - 1}` : '/end');
    const location =
      to === 'none' ? {} : { Location: Buffer.from(to.replace('THERE', there.origin)).toString('latin1') };
    response.writeHead(Number(status), { ...location, 'Set-Cookie': ['a=1', 'b=2'] }).end('moved');
  });
});
after(() => Promise.all([here.close(), there.close()]));

const plain = { limiter: new Limiter(), policy: '1000000/s' };
/** The options with a settle function, which runs at the end of a body. */
const settled = { ...plain, settle: () => 1 };

/** The outcome of a call: the servers' books, and the response or the error. */
async function outcome(fetch, make) {
  here.requests.length = 0;
  there.requests.length = 0;
  const books = () =>
    [here, there].map(({ requests }) =>
      requests.map(({ method, url, headers, body }) => {
        const { host, connection, ...rest } = headers;
        // The text between the parts of a form is another one each time.
        return JSON.stringify({ method, url, rest, body }).replaceAll(/-+formdata-[a-z]+-\d+/g, 'boundary');
      }),
    );
  try {
    const response = await fetch(...make());
    const { status, statusText, url, redirected, ok } = response;
    const copy = response.clone();
    assert.equal(await copy.text(), await response.text());
    assert.deepEqual([copy.url, copy.redirected], [url, redirected]);
    const headers = [...response.headers].filter(([name]) => name !== 'date');
    return { status, statusText, url, redirected, ok, headers, books: books() };
  } catch (error) {
    return { error: error.constructor.name, message: error.message, books: books() };
  }
}

const form = () => {
  const data = new FormData();
  data.set('a', 'b');
  return data;
};
const secrets = { Authorization: 'secret', Cookie: 'a=b', 'Content-Language': 'en', 'X-Kept': 'c' };
const stream = () => ({ body: new Blob(['text']).stream(), duplex: 'half' });
const inits = {
  'a GET': () => ({ headers: secrets }),
  'a HEAD': () => ({ method: 'HEAD' }),
  'a POST of text': () => ({ method: 'POST', body: 'text', headers: secrets }),
  'a PUT of a blob': () => ({ method: 'PUT', body: new Blob(['text']), headers: secrets }),
  'a POST of a form': () => ({ method: 'post', body: form() }),
  'a POST of fields': () => ({ method: 'POST', body: new URLSearchParams({ a: 'b c' }) }),
  'a POST of a stream': () => ({ method: 'POST', ...stream() }),
  'a patch': () => ({ method: 'patch', body: 'text' }),
};
const paths = [
  ...[301, 302, 303, 307, 308].flatMap((status) => [`/${status}`, `/${status}/3`, `/${status}?to=THERE/end`]),
  '/300',
  '/304?to=none',
  '/302?to=none',
  '/302?to=end%23part',
  '/302#mine',
  '/302?to=/%C3%BC',
  '/302?to=//',
  '/302?to=ftp://example.com/',
  '/302?to=data:text/plain,hello',
  '/end',
  '/zipped',
];

describe('pacedFetch answers as fetch does', () => {
  for (const [name, init] of Object.entries(inits)) {
    it(name, async () => {
      for (const path of paths) {
        // Without following, all redirects are alike, so a few paths are enough.
        for (const redirect of ['/301', '/302?to=none', '/end'].includes(path)
          ? ['follow', 'manual', 'error']
          : ['follow']) {
          if (name === 'a POST of a stream' && redirect === 'follow' && /30[12]/.test(path)) continue;
          const make = () => [here.origin + path, { ...init(), redirect }];
          const expected = await outcome(fetch, make);
          for (const options of [plain, settled]) {
            assert.deepEqual(await outcome(pacedFetch(options), make), expected, `${path}, ${redirect}`);
          }
        }
      }
    });
  }

  it('twenty redirects, and not one more', async () => {
    for (const path of ['/302/20', '/302/21']) {
      const make = () => [here.origin + path];
      assert.deepEqual(await outcome(pacedFetch(plain), make), await outcome(fetch, make));
    }
  });

  it('what is given in other forms', async () => {
    const forms = {
      url: () => [new URL('/302', here.origin)],
      request: () => [new Request(`${here.origin}/302`, { headers: secrets })],
      'request with a body': () => [new Request(`${here.origin}/302`, { method: 'POST', body: 'text' })],
      'request and options': () => [
        new Request(`${here.origin}/307`, { method: 'POST', body: 'text', headers: secrets }),
        { method: 'PUT', body: 'other', headers: undefined },
      ],
      'request with a method': () => [new Request(`${here.origin}/307`, { method: 'DELETE', headers: secrets })],
      'request and options that say nothing': () => [
        new Request(`${here.origin}/307`, { method: 'DELETE', headers: secrets }),
        { method: undefined, headers: undefined, body: undefined, signal: undefined },
      ],
      'request that follows nothing': () => [new Request(`${here.origin}/302`, { redirect: 'manual' })],
      'request as options': () => [
        `${here.origin}/302`,
        new Request(here.origin, { method: 'DELETE', headers: secrets }),
      ],
      'no URL': () => ['nowhere'],
      'no method': () => [here.origin, { method: 'a b' }],
      'a scheme without a server': () => ['data:text/plain,hello'],
      'no scheme of ours': () => ['ftp://example.com/'],
    };
    for (const [name, make] of Object.entries(forms)) {
      const expected = await outcome(fetch, make);
      for (const options of [plain, settled]) {
        assert.deepEqual(await outcome(pacedFetch(options), make), expected, name);
      }
    }
  });

  it('but for bytes, which some versions of Node cannot send again', async () => {
    here.requests.length = 0;
    const body = new TextEncoder().encode('text');
    await (await pacedFetch(plain)(`${here.origin}/307/2`, { method: 'PUT', body })).text();
    assert.deepEqual(
      here.requests.map(({ body }) => body),
      ['text', 'text', 'text'],
    );
  });

  it('but for a stream that a redirect drops', async () => {
    const response = await pacedFetch(plain)(`${here.origin}/302`, { method: 'POST', ...stream() });
    assert.deepEqual([response.status, response.url], [200, `${here.origin}/end`]);
  });

  it('but for the body of a Request, which is a stream', async () => {
    const request = new Request(`${here.origin}/307`, { method: 'POST', body: 'text' });
    await assert.rejects(pacedFetch(plain)(request), (error) => {
      assert.match(
        error.cause.message,
        /is a stream, which cannot be sent again: give it as text, bytes or a form in the options/,
      );
      return error instanceof TypeError;
    });
  });
});

describe('pacedFetch', () => {
  it('may have another fetch below it, and be below another one', async () => {
    const { limiter } = limiterAt();
    const seen = [];
    const mine = async (...given) => {
      seen.push(given);
      return new Response('mine');
    };
    const inner = pacedFetch({ limiter, policy: 'fixed-window 1/minute', fetch: mine, prefix: 'in:', timeoutMs: 0 });
    const outer = pacedFetch({ limiter, policy: 'fixed-window 5/minute', fetch: inner });
    assert.equal(await (await outer('https://example.com/')).text(), 'mine');
    assert.deepEqual([seen.length, seen[0][0]], [1, 'https://example.com/']);
    await assert.rejects(outer('https://EXAMPLE.com:443/other'), { code: 'rate_limited' });
    // The inner fetch sent nothing, so the outer one has its unit back.
    assert.deepEqual(await leftOf(limiter, 'fixed-window 5/minute', 'out:https://example.com'), [4]);
  });

  it('gives back what a body held that was forgotten', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc');
    const { limiter } = limiterAt();
    let ends = 0;
    const settle = () => ({ feed() {}, end: () => void ends++ });
    const fetch = pacedFetch({ limiter, policy: 'concurrency 2', settle });
    await (async () => {
      await (await fetch(`${here.origin}/end`)).text();
      await fetch(`${here.origin}/end`);
    })();
    assert.equal(ends, 1);
    await until(async () => {
      collect();
      return (await leftOf(limiter, 'concurrency 2', `out:${here.origin}`))[0] === 2;
    });
    // A body that has ended is not ended again.
    for (let round = 0; round < 5; round++) await new Promise((resolve) => setTimeout(resolve, 1, collect()));
    assert.equal(ends, 2);
  });

  it('keeps a body that is slow from the caller, and reads nothing ahead', async () => {
    let pulled = 0;
    const body = new ReadableStream(
      {
        pull(controller) {
          controller.enqueue(new Uint8Array(1));
          if (++pulled === 1_000) controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const fetch = pacedFetch({ ...settled, fetch: async () => new Response(body) });
    const reader = (await fetch('https://example.com/')).body.getReader();
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(pulled <= 2, `${pulled} chunks were read`);
    await reader.cancel();
  });

  it('says what is wrong with an option', () => {
    const { limiter } = limiterAt({ policies: { api: '5/minute' } });
    const wrong = [
      [undefined, /tidegate\/fetch: give options, an object with limiter, policy, .*; this is undefined/],
      [{ limiter, polcy: 'api' }, /tidegate\/fetch has no option polcy: did you mean policy\?/],
      [{ limiter: {}, policy: 'api' }, /the option limiter must be a Limiter.*, not an object/],
      [{ policy: 'api' }, /the option limiter must be a Limiter.*, not undefined/],
      [{ limiter, policy: 'apj' }, /apj/],
      [{ limiter, policy: null }, /the option policy cannot be null: leave it out/],
      [{ limiter, policy: 'api', key: 5 }, /key must be .*, not 5/],
      [{ limiter, policy: 'api', cost: 0 }, /a cost must be .*, not 0/],
      [{ limiter, policy: 'api', cost: { tokens: 1 } }, /tokens/],
      [{ limiter, policy: 'api', priority: 'low' }, /no policy has classes/],
      [{ limiter, policy: 'api', timeoutMs: -1 }, /timeoutMs must be a number of milliseconds, or Infinity.*, not -1/],
      [{ limiter, policy: 'api', timeoutMs: Number.NaN }, /timeoutMs must be .*, not NaN/],
      [{ limiter, policy: 'api', timeoutMs: '5s' }, /timeoutMs must be a number.*, not "5s"/],
      [{ limiter, policy: 'api', retries: 1.5 }, /retries must be a whole number from 0.*, not 1.5/],
      [{ limiter, policy: 'api', marginMs: Infinity }, /marginMs must be .*, not Infinity/],
      [{ limiter, policy: 'api', maxLearnedWaitMs: -1 }, /maxLearnedWaitMs must be .*, not -1/],
      [{ limiter, policy: 'api', learn: 'yes' }, /learn must be a boolean.*, not "yes"/],
      [{ limiter, policy: 'api', settle: 5 }, /settle must be a function.*, not 5/],
      [{ limiter, policy: 'api', onWait: 5 }, /onWait must be a function.*, not 5/],
      [{ limiter, policy: 'api', prefix: 5 }, /prefix must be a string.*, not 5/],
      [{ limiter, policy: 'api', respond: 1 }, /respond must be a boolean.*, not 1/],
      [{ limiter, learn: false }, /without a policy and with learn: false nothing is limited/],
      [{ limiter, policy: 'leaky-bucket 5/s' }, /is a leaky-bucket, which queues calls itself: a request waits here/],
      [{ limiter, policy: 'api', fetch: 5 }, /the option fetch must be a function.*, not 5/],
    ];
    for (const [options, message] of wrong) {
      assert.throws(() => pacedFetch(options), { message }, String(message));
      if (options?.fetch === undefined) assert.throws(() => paced(options));
    }
    assert.throws(() => paced({ limiter, policy: 'api', fetch }), /tidegate\/undici has no option fetch/);
  });

  it('says what is wrong with what a function returned', async () => {
    const { limiter } = limiterAt();
    const call = (options) => pacedFetch({ limiter, policy: '5/minute', ...options })(here.origin);
    await assert.rejects(call({ key: () => 5 }), /the key function of tidegate\/fetch returned 5/);
    await assert.rejects(call({ cost: () => 'a' }), /the cost function of tidegate\/fetch returned "a"/);
    await assert.rejects(call({ priority: () => 5 }), /the priority function of tidegate\/fetch returned 5/);
    await assert.rejects(call({ policy: () => 5 }), /a policy must be .*, not 5/);
    await assert.rejects(call({ policy: () => 'leaky-bucket 5/s' }), /is a leaky-bucket/);
    await assert.rejects(call({ settle: async () => 5 }), /settle returned a Promise: it must return a whole number/);
    const failing = () => {
      throw new Error('mine');
    };
    for (const name of ['policy', 'key', 'cost', 'priority', 'settle', 'onWait']) {
      if (name === 'onWait') await limiter.charge(limiter.policy('5/minute').paced(), `out:${here.origin}`, 9);
      await assert.rejects(call({ [name]: failing }), /mine/, name);
    }
  });
});
