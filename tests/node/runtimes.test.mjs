// The same binary in other runtimes, which npm installs. If one cannot be installed, its test is skipped.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Servers } from '../servers/servers.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url));
const cache = join(root, '.cache/runtimes');
const call = promisify(execFile);
const { arch, platform } = process;
// Deno has packages for glibc only, and the names of the other packages here are those for glibc.
const glibc = platform !== 'linux' || process.report.getReport().header.glibcVersionRuntime !== undefined;
const bunArch = arch === 'arm64' ? 'aarch64' : arch;
const system = platform === 'linux' ? 'linux' : platform;

const runtimes = [
  { name: 'node22', spec: `node-${system}-${arch}@22`, program: 'bin/node', args: [] },
  { name: 'node24', spec: `node-${system}-${arch}@24`, program: 'bin/node', args: [] },
  { name: 'bun', spec: `@oven/bun-${system}-${bunArch}@1`, program: 'bin/bun', args: [] },
  {
    name: 'deno',
    spec: `@deno/${system}-${arch}${platform === 'linux' ? '-glibc' : ''}@2`,
    program: 'deno',
    args: ['run', '--allow-all', '--node-modules-dir=manual', '--no-lock'],
  },
];

let servers;
before(async () => {
  servers = await Servers.start('single');
  rmSync(join(cache, 'project'), { recursive: true, force: true });
  mkdirSync(join(cache, 'project/node_modules'), { recursive: true });
  const dependencies = { tidegate: '*', express: '*', hono: '*' };
  writeFileSync(join(cache, 'project/package.json'), JSON.stringify({ type: 'module', dependencies }));
  symlinkSync(root, join(cache, 'project/node_modules/tidegate'), 'dir');
  for (const name of ['express', 'hono']) {
    symlinkSync(join(root, 'node_modules', name), join(cache, 'project/node_modules', name), 'dir');
  }
  for (const program of ['everywhere.mjs', 'web.mjs', 'calls.mjs']) {
    copyFileSync(join(root, 'tests/node/programs', program), join(cache, 'project', program));
  }
});
after(() => servers?.close());

/** The path of a runtime's program, installed from npm. */
async function install({ name, spec, program }) {
  const prefix = join(cache, name);
  const path = join(prefix, 'node_modules', spec.slice(0, spec.lastIndexOf('@')), program);
  if (!existsSync(path)) {
    mkdirSync(prefix, { recursive: true });
    const rest = ['--prefix', prefix, '--ignore-scripts', '--no-audit', '--no-fund', '--no-save'];
    await call('npm', ['install', ...rest, spec], { timeout: 300_000 });
  }
  return path;
}

/** The outcome of installing each. If npm cannot be reached, that takes a minute, so all are installed at once, and once. */
const installed = new Map();
before(() => {
  for (const runtime of glibc ? runtimes : []) installed.set(runtime, install(runtime));
  return Promise.allSettled(installed.values());
});

/** The path for a test. The test is skipped if the runtime cannot be installed. */
async function pathFor(test, runtime) {
  if (!glibc) return test.skip('its packages are for glibc');
  try {
    return await installed.get(runtime);
  } catch (error) {
    return test.skip(`${runtime.spec} cannot be installed: ${error.message.split('\n')[0]}`);
  }
}

for (const runtime of runtimes) {
  // Hono also runs on Bun and Deno. The web adapters on Node have separate tests.
  const programs = ['bun', 'deno'].includes(runtime.name)
    ? ['everywhere.mjs', 'web.mjs', 'calls.mjs']
    : ['everywhere.mjs'];
  for (const program of programs) {
    it(`${runtime.name}: ${program}`, async (test) => {
      const path = await pathFor(test, runtime);
      if (path === undefined) return;
      const cwd = join(cache, 'project');
      const { stdout } = await call(path, [...runtime.args, program, servers.url], { cwd, timeout: 120_000 });
      assert.equal(stdout.trim(), 'done');
    });
  }
}

it('the Node that runs the tests: everywhere.mjs', async () => {
  const cwd = join(cache, 'project');
  const { stdout } = await call(process.execPath, ['everywhere.mjs', servers.url], { cwd, timeout: 120_000 });
  assert.equal(stdout.trim(), 'done');
});

// undici 8 needs a newer Node than the oldest that the package supports.
for (const runtime of runtimes.filter(({ name }) => name.startsWith('node'))) {
  it(`${runtime.name}: the clients of calls that go out, undici 8 among them`, async (test) => {
    const path = await pathFor(test, runtime);
    if (path === undefined) return;
    const files = ['outgoing_clients', 'paced_undici'].map((name) => join(root, `tests/node/${name}.test.mjs`));
    // Without this variable the run is no part of this test.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const { stdout } = await call(path, ['--test', '--test-reporter=tap', ...files], {
      cwd: root,
      env,
      timeout: 120_000,
    });
    assert.match(stdout, /# Subtest: undici 8\n/);
    assert.match(stdout, /^# fail 0$/m);
  });
}
