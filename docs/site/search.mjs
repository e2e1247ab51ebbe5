// Asks the search of the built site what users ask, with the very worker that their browser runs: the right page has to be among
// the first three.
//
//     node docs/site/search.mjs FOLDER

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import vm from 'node:vm';

const FIRST = 3;
const QUESTIONS = [
  ['behind a proxy', 'guides/callers/'],
  ['X-Forwarded-For', 'guides/callers/'],
  ['ProxyFix', 'frameworks/flask/'],
  ['application factory', 'frameworks/flask/'],
  ['ipKeyGenerator', 'moving/express-rate-limit/'],
  ['skipFailedRequests', 'moving/express-rate-limit/'],
  ['tracing-subscriber', 'frameworks/axum/'],
  ['sighup', 'reference/policy-file/'],
  ['nginx', 'recipes/nginx/'],
  ['api key', 'guides/callers/'],
  ['ipv6', 'guides/callers/'],
  ['block an ip', 'production/refused/'],
  ['why was I refused', 'production/refused/'],
  ['unblock', 'production/refused/'],
  ['llm', 'guides/llm/'],
  ['openai', 'guides/llm/'],
  ['tokens per minute', 'guides/llm/'],
  ['serverless', 'recipes/serverless/'],
  ['lambda', 'recipes/serverless/'],
  ['edge', 'recipes/serverless/'],
  ['celery', 'guides/jobs/'],
  ['bullmq', 'guides/jobs/'],
  ['store', 'production/stores/'],
  ['valkey', 'production/stores/'],
  ['postgres', 'production/postgres/'],
  ['pgbouncer', 'production/postgres/'],
  ['sqlite', 'production/your-own-store/'],
  ['dynamodb', 'production/your-own-store/'],
  ['watch', 'reference/policy-file/'],
  ['cidr', 'guides/overrides/'],
  ['redis down', 'production/store-failures/'],
  ['fail open', 'production/store-failures/'],
  ['cluster', 'production/scaling-out/'],
  ['multiple workers', 'production/scaling-out/'],
  ['plans', 'recipes/plans/'],
  ['allowlist', 'recipes/plans/'],
  ['per tenant', 'recipes/plans/'],
  ['graphql', 'recipes/graphql/'],
  ['websocket', 'recipes/websockets/'],
  ['streaming', 'recipes/websockets/'],
  ['webpack', 'recipes/bundlers/'],
  ['upstash', 'recipes/managed-redis/'],
  ['elasticache', 'recipes/managed-redis/'],
  ['pytest', 'guides/testing/'],
  ['freezegun', 'guides/testing/'],
  ['retry-after', 'guides/denials/'],
  ['custom error message', 'guides/denials/'],
  ['prometheus', 'metrics/'],
  ['flask', 'frameworks/flask/'],
  ['fastapi', 'frameworks/fastapi/'],
  ['django rest framework', 'frameworks/django/'],
  ['express', 'frameworks/express/'],
  ['nestjs', 'frameworks/nest/'],
  ['axum', 'frameworks/axum/'],
  ['grpc', 'frameworks/tonic/'],
  ['token bucket', 'guides/algorithms/'],
  ['gcra', 'guides/algorithms/'],
  ['monthly quota', 'guides/calendars/'],
  ['concurrent requests', 'guides/concurrency/'],
  ['httpx', 'guides/outgoing-python/'],
  ['error codes', 'reference/errors/'],
  ['yaml', 'reference/policy-file/'],
  ['cli', 'reference/command/'],
  ['flask-limiter', 'moving/flask-limiter/'],
  ['express-rate-limit', 'moving/express-rate-limit/'],
  ['production', 'production/checklist/'],
  ['upgrade', 'production/upgrading/'],
  // Without the boosts, what was decided comes before the guides.
  ['windows', 'guides/algorithms/'],
  ['node', 'frameworks/node/'],
  ['downgrade', 'production/upgrading/'],
  ['login', 'recipes/login/'],
  ['brute force', 'recipes/login/'],
  ['gunicorn nginx', 'recipes/nginx/'],
  ['plans express', 'recipes/express-plans/'],
  ['health check', 'recipes/health-checks/'],
  ['daily quota', 'recipes/daily-quota/'],
  ['systemd', 'recipes/systemd-docker/'],
  ['docker', 'recipes/systemd-docker/'],
  ['llm workers', 'recipes/llm-workers/'],
  ['guarantees', 'production/guarantees/'],
  ['failover', 'production/guarantees/'],
  ['acl', 'production/redis/'],
  ['noeviction', 'production/redis/'],
  ['rediss', 'production/stores/'],
  ['without redis', 'production/file/'],
  ['glossary', 'reference/glossary/'],
  ['axios', 'guides/outgoing-node/'],
  ['override', 'guides/overrides/'],
  ['priority', 'guides/priorities/'],
];

const [folder = '.cache/site'] = process.argv.slice(2);
const workers = join(folder, 'assets/javascripts/workers');
const [worker] = readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(readFileSync(join(folder, 'search/search_index.json'), 'utf8'));

// What the worker of mkdocs-material finds in a browser, and its messages: 0 sets up, 1 is ready, 2 asks, 3 answers.
const listeners = [];
let received;
const scope = {
  console,
  addEventListener: (_, listener) => listeners.push(listener),
  postMessage: (message) => received(message),
  importScripts() {},
  setTimeout,
};
scope.self = scope.globalThis = scope;
vm.createContext(scope);
vm.runInContext(readFileSync(join(workers, worker), 'utf8'), scope);

/** Sends a message, and returns the answer. */
function send(type, data) {
  return new Promise((resolve) => {
    received = resolve;
    for (const listener of listeners) listener({ data: { type, data } });
  });
}

await send(0, { ...index, options: { suggest: true } });
let wrong = 0;
for (const [question, page] of QUESTIONS) {
  const { data } = await send(2, question);
  const found = data.items.slice(0, FIRST).map(([{ location }]) => location.split('#')[0]);
  if (found.includes(page)) continue;
  wrong += 1;
  console.log(`${question}: ${page} is not among ${found.join(', ')}`);
}
console.log(`${QUESTIONS.length} questions to the search, ${wrong} without the right page among the first ${FIRST}`);
process.exitCode = wrong ? 1 : 0;
