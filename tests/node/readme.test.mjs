// Every Node block of the READMEs and of the pages runs as printed, against a real server.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { transform } from 'esbuild';

import { Servers } from '../servers/servers.mjs';
import { programOf, root, snippets } from './snippets.mjs';

let servers;
let postgres;
let folder;
before(async () => {
  servers = await Servers.start('single');
  postgres = await Servers.start('postgres');
  // In this checkout, so that 'tidegate' is this package.
  mkdirSync(join(root, '.cache'), { recursive: true });
  folder = mkdtempSync(join(root, '.cache/readme-'));
});
after(async () => {
  rmSync(folder, { recursive: true });
  await servers.close();
  await postgres.close();
});

const DECORATORS = { compilerOptions: { experimentalDecorators: true } };

function run(program) {
  return new Promise((resolve) => {
    const env = {
      ...process.env,
      REDIS_URL: servers.url,
      DATABASE_URL: postgres.url,
      TIDEGATE_POLICIES: folder,
    };
    const child = spawn(process.execPath, [program], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (data) => {
      stdout += data;
    });
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ stdout, stderr, ended: code ?? signal });
    });
  });
}

it('the pages show Node', () => {
  const shown = snippets().map(({ name }) => name);
  assert.ok(shown.length >= 60, `${shown.length} blocks`);
  for (const page of ['README.md', 'bindings-node/README.md', 'docs/index.md', 'docs/start.md']) {
    assert.ok(
      shown.some((name) => name.startsWith(`${page}:`)),
      page,
    );
  }
});

it('no block uses what it does not declare, in functions that nothing calls either', () => {
  const lint = join(folder, 'lint');
  mkdirSync(lint);
  writeFileSync(join(lint, 'biome.json'), '{"root": true}');
  for (const [index, { name, language, code }] of snippets().entries()) {
    writeFileSync(join(lint, `${index}.${language === 'ts' ? 'ts' : 'mjs'}`), `// ${name}\n${code}`);
  }
  const biome = join(root, 'node_modules/.bin/biome');
  const ended = spawnSync(biome, ['lint', '--only=correctness/noUndeclaredVariables', '.'], {
    cwd: lint,
    encoding: 'utf8',
  });
  assert.equal(ended.status, 0, ended.stderr);
  assert.match(ended.stdout + ended.stderr, /Checked \d+ files/);
});

/** The output of the block of a page that has this text, with more code behind it. */
async function printed(page, text, more) {
  const { code } = snippets().find(({ name, code }) => name.startsWith(`${page}:`) && code.includes(text));
  const program = join(folder, 'printed.mjs');
  writeFileSync(program, `process.env.REDIS_URL = 'memory://';\n${code}${more}`);
  const { stdout, stderr } = await run(program);
  assert.equal(stderr, '', stdout);
  return stdout;
}

it('a function without a server answers a refusal with a problem', async () => {
  const more = `
    let last;
    for (let call = 0; call < 101; call++) last = await handler(event);
    console.log(JSON.parse(last.body).status);
    await limiter.close();`;
  assert.equal(await printed('docs/recipes/serverless.md', 'export async function handler', more), '200\n429\n');
});

it('a visitor without a user has the plan of visitors', async () => {
  const more = `
    const server = app.listen(0, async () => {
      for (const headers of [{}, { Authorization: 'Bearer of-alice' }]) {
        const answer = await fetch(\`http://127.0.0.1:\${server.address().port}/report\`, { headers });
        console.log(answer.status, answer.headers.get('ratelimit-policy').includes('q=5000'));
      }
      server.close();
    });`;
  assert.equal(await printed('docs/recipes/plans.md', 'byPlan', more), '200 false\n200 true\n');
});

describe('a block runs to its end, without a warning', { concurrency: 2 }, () => {
  for (const [index, { name, language, code }] of snippets().entries()) {
    it(name, async () => {
      const program = join(folder, `${index}.mjs`);
      const source = programOf(code, servers.url);
      const { code: script } =
        language === 'ts' ? await transform(source, { loader: 'ts', tsconfigRaw: DECORATORS }) : { code: source };
      writeFileSync(program, script);
      const { stdout, stderr, ended } = await run(program);
      assert.deepEqual({ stderr, ended }, { stderr: '', ended: 0 }, code);
      assert.match(stdout, /end of the snippet\n$/);
    });
  }
});
