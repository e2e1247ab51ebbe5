// Features of Express alone: routers and applications that are mounted, and error middleware.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import express5 from 'express';
import express4 from 'express4';
import { Limiter, ManualClock, Policy } from 'tidegate';
import * as express from 'tidegate/express';
import { get } from './client.mjs';
import { listening } from './servers/listening.mjs';

const NOTATION = 'fixed-window 2/minute';
const policies = { once: 'fixed-window 1/minute' };
const limiting = (more = {}) => new Limiter({ policies, clock: new ManualClock(1_704_067_200_000), ...more });

for (const [version, Express] of [
  [4, express4],
  [5, express5],
]) {
  describe(`Express ${version}`, () => {
    async function serving(t, app) {
      const server = await listening(app.listen(0, '127.0.0.1'));
      t.after(() => server.close());
      return server.url;
    }
    const statuses = async (url, paths) => {
      const seen = [];
      for (const path of paths) seen.push((await get(url + path)).status);
      return seen;
    };
    const hello = (_request, response) => response.send('hello');

    test('the place of a mounted router is its pattern, not the path that a client chose', async (t) => {
      const limiter = limiting();
      const app = Express();
      const router = Express.Router();
      router.get('/login', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/tenants/:tenant', router);
      const url = await serving(t, app);
      assert.deepEqual(
        await statuses(url, ['/tenants/1/login', '/TENANTS/2/login', '/tenants/3/login']),
        [200, 200, 429],
      );
      if (version === 5) {
        assert.equal((await limiter.peek(NOTATION, '/tenants/:tenant/login 127.0.0.1')).remaining, 0);
      }
    });

    test('middleware at two mounts count for themselves, in whatever case a client writes them', async (t) => {
      const limiter = limiting();
      const app = Express();
      app.use('/a', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/b', express.rateLimit({ limiter, policy: NOTATION }), hello);
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/a', '/A', '/a/x', '/b', '/B/y', '/b']), [200, 200, 429, 200, 200, 429]);
      assert.equal((await limiter.peek(NOTATION, '/a 127.0.0.1')).remaining, 0);
    });

    test('an application in an application, and one middleware at two mounts', async (t) => {
      const limiter = limiting();
      const [app, inner] = [Express(), Express()];
      const shared = express.rateLimit({ limiter, policy: NOTATION });
      inner.get('/x', express.rateLimit({ limiter, policy: NOTATION }), hello);
      app.use('/inner', inner);
      app.use('/one', shared, hello);
      app.use('/two', shared, hello);
      app.get('/x', express.rateLimit({ limiter, policy: NOTATION }), hello);
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/x', '/x', '/x', '/inner/x']), [200, 200, 429, 200]);
      assert.equal((await limiter.peek(NOTATION, '/inner/x 127.0.0.1')).remaining, 1);
      assert.deepEqual(await statuses(url, ['/one', '/one', '/one', '/two']), [200, 200, 429, 200]);
    });

    test('a router, an application and a middleware below two mounts are two places', async (t) => {
      const limiter = limiting();
      const here = () => express.rateLimit({ limiter, policy: NOTATION });
      const [app, inner, router, one, two] = [
        Express(),
        Express(),
        Express.Router(),
        Express.Router(),
        Express.Router(),
      ];
      router.get('/x', here(), hello);
      inner.get('/x', here(), hello);
      const shared = here();
      one.use(shared);
      one.get('/x', hello);
      two.use('/deep', shared, hello);
      for (const version of ['/v1', '/v2']) app.use(`${version}/router`, router);
      for (const version of ['/v1', '/v2']) app.use(`${version}/app`, inner);
      app.use('/tenants/:tenant', one);
      app.use('/two', two);
      app.use('/bare/:what', here(), hello);
      const url = await serving(t, app);
      const places = [
        ['/v1/router/x', '/V1/router/x', '/v1/router/x/'],
        ['/v2/router/x', '/v2/router/x', '/v2/router/x'],
        ['/v1/app/x', '/v1/app/X', '/v1/app/x'],
        ['/v2/app/x', '/v2/app/x', '/v2/app/x'],
        ['/tenants/1/x', '/tenants/2/x', '/tenants/3/x'],
        ['/two/deep', '/two/deep/1', '/two/DEEP'],
        ['/bare/1', '/bare/2', '/bare/3'],
      ];
      for (const paths of places) assert.deepEqual(await statuses(url, paths), [200, 200, 429], paths[0]);
      assert.equal((await limiter.peek(NOTATION, '/v1/router/x 127.0.0.1')).remaining, 0);
      assert.equal((await limiter.peek(NOTATION, '/v2/app/x 127.0.0.1')).remaining, 0);
    });

    test('a middleware that is added to another route after a request counts for that route', async (t) => {
      const limiter = limiting();
      const app = Express();
      const shared = express.rateLimit({ limiter, policy: NOTATION });
      app.get('/a', shared, hello);
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/a', '/a', '/a']), [200, 200, 429]);
      app.get('/b', shared, hello);
      app.use('/c', shared, hello);
      assert.deepEqual(await statuses(url, ['/b', '/c', '/b', '/c']), [200, 200, 200, 200]);
      assert.deepEqual(await statuses(url, ['/a', '/b', '/c']), [429, 429, 429]);
    });

    test('a function that calls a middleware at a route counts for that route', async (t) => {
      const limiter = limiting();
      const app = Express();
      const router = Express.Router();
      const wrapped = () => {
        const middleware = express.rateLimit({ limiter, policy: NOTATION });
        return (request, response, next) => middleware(request, response, next);
      };
      for (const path of ['/a', '/b']) {
        app.get(path, wrapped(), hello);
        router.get(path, wrapped(), hello);
      }
      app.use('/router', router);
      const url = await serving(t, app);
      for (const path of ['/a', '/b', '/router/a', '/router/b']) {
        assert.deepEqual(await statuses(url, [path, path, path]), [200, 200, 429], path);
      }
    });

    test('a second notation that functions call without a route is an error with the way out', async (t) => {
      const limiter = limiting();
      const app = Express();
      const errors = [];
      const wrapped = (middleware) => (request, response, next) => middleware(request, response, next);
      app.use('/first', wrapped(express.rateLimit({ limiter, policy: NOTATION })), hello);
      app.use('/a', wrapped(express.rateLimit({ limiter, policy: NOTATION })), hello);
      const named = new Policy(NOTATION, { name: 'named' });
      app.use('/b', wrapped(express.rateLimit({ limiter, policy: named })), hello);
      app.use((error, _request, response, _next) => {
        errors.push(error);
        response.status(500).end();
      });
      const url = await serving(t, app);
      assert.deepEqual(await statuses(url, ['/first', '/a', '/b', '/first', '/first']), [200, 500, 200, 200, 429]);
      assert.equal(errors[0].code, 'config_invalid');
      assert.match(errors[0].message, /new Policy\('5\/minute', \{ name: 'login' \}\)/);
    });

    test('request.rateLimit is the Decision also where the request had another', async (t) => {
      const app = Express();
      app.use((request, _response, next) => {
        request.rateLimit = { mine: 1 };
        next();
      });
      app.use(express.rateLimit({ limiter: limiting(), policy: NOTATION }));
      app.get('/', (request, response) => response.send(String(request.rateLimit.remaining)));
      assert.equal((await get(await serving(t, app))).body, '1');
    });

    test('the error of onDenied is a 500 where nothing handles it', async (t) => {
      const app = Express();
      app.set('env', 'test');
      const onDenied = () => Promise.reject(new TypeError('a bug'));
      app.use(express.rateLimit({ limiter: limiting(), policy: 'once', onDenied }), hello);
      assert.deepEqual(await statuses(await serving(t, app), ['/', '/']), [200, 500]);
    });

    test("onDenied: 'throw' gives refusals and missing stores to the error middleware", async (t) => {
      const limiter = limiting();
      const lost = limiting({ store: 'redis://127.0.0.1:1', onStoreError: 'raise', clock: undefined });
      t.after(() => lost.close());
      const app = Express();
      app.use('/once', express.rateLimit({ limiter, policy: 'once', onDenied: 'throw' }), hello);
      app.use('/lost', express.rateLimit({ limiter: lost, policy: 'once', onDenied: 'throw' }), hello);
      app.use((error, _request, response, _next) => {
        response.status(error.status).json({ code: error.code, wait: response.getHeader('retry-after') });
      });
      const url = await serving(t, app);
      await get(`${url}/once`);
      const refused = await get(`${url}/once`);
      assert.deepEqual([refused.status, JSON.parse(refused.body)], [429, { code: 'rate_limited', wait: '60' }]);
      const missing = await get(`${url}/lost`);
      assert.equal(missing.status, 503);
      assert.match(JSON.parse(missing.body).code, /^store_/);
    });
  });
}
