import { pipeline } from 'node:stream';
import express5 from 'express';
import express4 from 'express4';
import * as adapter from 'tidegate/express';
import { listening } from './listening.mjs';

const start =
  (express) =>
  async ({ limits, routes = [], twice, trust, handler, failed }) => {
    const app = express();
    if (trust !== undefined) app.set('trust proxy', trust);
    app.use((request, _response, next) => {
      const { 'x-user': user, 'x-claims': claims } = request.headers;
      if (user !== undefined) request.user = JSON.parse(user);
      if (claims !== undefined) request.auth = JSON.parse(claims);
      next();
    });
    for (const options of limits) {
      const middleware = adapter.rateLimit(options);
      app.use(middleware);
      if (twice) app.use(middleware);
    }
    for (const [path, ...all] of routes) {
      app.all(path, ...all.map((options) => adapter.rateLimit(options)), (_request, _response, next) => next());
    }
    app.use((request, response, next) => {
      const call = { method: request.method, url: request.url, decision: request.rateLimit };
      Promise.resolve(handler(call)).then(({ status = 200, body }) => {
        response.status(status);
        if (typeof body === 'string') response.send(body);
        else pipeline(body, response, () => {});
      }, next);
    });
    app.use((error, _request, response, _next) => {
      failed?.(error);
      response.status(error.status ?? 500).send('failed');
    });
    return listening(app.listen(0, '127.0.0.1'));
  };

const plainDenials = [(_request, _decision, response) => void response.json({ slow: 'down' })];

export const onExpress4 = { name: 'Express 4', adapter, start: start(express4), trust: true, plainDenials };
export const onExpress5 = { name: 'Express 5', adapter, start: start(express5), trust: true, plainDenials };
