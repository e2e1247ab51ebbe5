// Applications of frameworks that build their servers. Each is installed with the packed package, built, started, and asked over HTTP.
// The files of Next.js are those of its page, one of each other framework is its block on the page `web.md`, and the rest is in
// `tests/frameworks`.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { get, open, until } from '../web/client.mjs';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const cache = join(root, '.cache/frameworks');
const call = promisify(execFile);
const frameworks = JSON.parse(readFileSync(join(root, 'tests/frameworks/frameworks.json'), 'utf8'));
const env = {
  ...process.env,
  NEXT_TELEMETRY_DISABLED: '1',
  ASTRO_TELEMETRY_DISABLED: '1',
  NUXT_TELEMETRY_DISABLED: '1',
  NODE_ENV: 'production',
};
delete env.NODE_TEST_CONTEXT;

let tarball;
before(async () => {
  mkdirSync(cache, { recursive: true });
  const words = ['pack', '--ignore-scripts', '--json', '--pack-destination', cache];
  const { stdout } = await call('npm', words, { cwd: root, maxBuffer: 2 ** 24 });
  tarball = join(cache, Object.values(JSON.parse(stdout))[0].filename);
});

/** Installs a framework. What was installed before with the same packages stays. */
async function install(folder, packages) {
  const stamp = join(folder, 'installed.json');
  const wanted = JSON.stringify(packages);
  if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== wanted) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'package.json'), '{"private": true, "type": "module"}');
    const words = ['install', '--no-audit', '--no-fund', '--loglevel=error', tarball, ...packages];
    await call('npm', words, { cwd: folder, env: { ...env, NODE_ENV: 'development' }, timeout: 600_000 });
    writeFileSync(stamp, wanted);
  }
  const installed = join(folder, 'node_modules/tidegate');
  rmSync(installed, { recursive: true, force: true });
  mkdirSync(installed, { recursive: true });
  await call('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1']);
}

/** Writes the blocks of a page that have titles. */
function writePage(page, folder) {
  const text = readFileSync(join(root, 'docs/frameworks', page), 'utf8');
  for (const [, name, code] of text.matchAll(/^```js title="([^"]+)"\n(.*?)^```$/gms)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), code);
  }
}

/** Writes the block of `web.md` that begins with the name of its file. */
function writeBlock(name, folder) {
  const [, code] = readFileSync(join(root, 'docs/frameworks/web.md'), 'utf8').split(`\`\`\`js\n// ${name}\n`);
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), code.split('```')[0]);
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/** Starts the server with a version of Node, and returns its URL. */
async function start(t, folder, node, script) {
  const PORT = String(await freePort());
  const options = { cwd: folder, env: { ...env, PORT, HOST: '127.0.0.1' }, stdio: ['ignore', 'pipe', 'pipe'] };
  const child = spawn(node, script, options);
  const ended = once(child, 'exit');
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data));
  t.after(() => {
    child.kill('SIGKILL');
    return ended;
  });
  const url = `http://127.0.0.1:${PORT}`;
  await until('the server listens', async () => {
    if (child.exitCode !== null) throw new Error(output);
    await new Promise((resolve) => setTimeout(resolve, 50));
    return get(url).then(
      () => true,
      () => false,
    );
  });
  return url;
}

/** The Node that runs the tests, and a newer one, which `runtimes.test.mjs` has installed. */
const newer = join(root, `.cache/runtimes/node24/node_modules/node-${process.platform}-${process.arch}/bin/node`);
const nodes = [
  { node: process.execPath, version: Number.parseInt(process.versions.node, 10) },
  ...(existsSync(newer) ? [{ node: newer, version: 24 }] : []),
];

for (const { name, packages, page, block, build, start: script, node: oldest = 20 } of frameworks) {
  const able = nodes.filter(({ version }) => version >= oldest);
  describe(name, { skip: able.length === 0 && `it needs Node ${oldest}` }, () => {
    const folder = join(cache, name);
    before(async () => {
      await install(folder, packages);
      if (page !== undefined) writePage(page, folder);
      else cpSync(join(root, 'tests/frameworks/limits.mjs'), join(folder, 'limits.mjs'));
      cpSync(join(root, 'tests/frameworks', name), folder, { recursive: true });
      if (block !== undefined) writeBlock(block, folder);
      await call(able[0].node, build, { cwd: folder, env, timeout: 600_000, maxBuffer: 2 ** 24 });
    });

    for (const { node, version } of able) {
      test(`Node ${version}`, async (t) => {
        const url = await start(t, folder, node, script);
        // SvelteKit takes a request without a media type for that of a form on another site.
        const fields = { 'content-type': 'application/json' };
        const client = (last) => ({ headers: { 'x-forwarded-for': `198.51.100.${last}`, ...fields } });
        const answers = [];
        for (let sent = 0; sent < 6; sent++) answers.push(await get(`${url}/login`, { method: 'POST', ...client(1) }));
        assert.deepEqual(
          answers.map(({ status }) => status),
          [200, 200, 200, 200, 200, 429],
        );
        assert.deepEqual([answers[0].body, answers[0].headers['x-ratelimit-remaining']], ['4 left\n', '4']);
        assert.match(answers[0].headers['ratelimit-policy'], /^"login";q=5;w=60$/);
        const refused = answers[5];
        assert.equal(refused.headers['content-type'], 'application/problem+json');
        assert.ok(Number(refused.headers['retry-after']) > 0);
        assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['login']);
        if (page !== undefined || block !== undefined) {
          // The proxy of Next.js counts what no route has. Elsewhere this is the route of the block.
          const statuses = [];
          for (let sent = 0; sent < 101; sent++) statuses.push((await get(`${url}/things`, client(3))).status);
          assert.deepEqual(new Set(statuses.slice(0, 100)), new Set([page === undefined ? 200 : 404]));
          assert.equal(statuses[100], 429);
        }
        // A hold ends when its client disconnects.
        const endless = await open(`${url}/exports`, client(2));
        assert.equal(endless.statusCode, 200);
        await new Promise((resolve) => endless.once('data', resolve));
        assert.equal((await get(`${url}/exports`, client(2))).status, 429);
        endless.destroy();
        await until('the hold is given back', async () => {
          const again = await open(`${url}/exports`, client(2));
          again.destroy();
          return again.statusCode === 200;
        });
      });
    }
  });
}
