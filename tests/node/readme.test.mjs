// Every Node snippet of the README and of the documents runs as it stands there, against a real server.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Servers } from '../servers/servers.mjs';

const root = fileURLToPath(new URL('../../', import.meta.url));
const documents = [
  'README.md',
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const snippets = documents.flatMap((document) => {
  const text = readFileSync(join(root, document), 'utf8');
  return Array.from(text.matchAll(/```(?:ts|js|mjs|javascript|typescript)\n(.*?)```/gs), ([, code], index) => ({
    name: `${document}, snippet ${index + 1}`,
    code,
  }));
});

/** What a snippet takes for granted: the functions of the reader's program. */
const PROVIDED = { send: 'async function send(user) { return user; }' };

let servers;
let folder;
before(async () => {
  servers = await Servers.start('single');
  // In this checkout, so that 'tidegate' is this package.
  mkdirSync(join(root, '.cache'), { recursive: true });
  folder = mkdtempSync(join(root, '.cache/readme-'));
});
after(async () => {
  rmSync(folder, { recursive: true });
  await servers.close();
});

/** A snippet as a program, whose last line says that it ran to its end. */
function programOf(code) {
  const provided = Object.entries(PROVIDED)
    .filter(([name]) => new RegExp(`\\b${name}\\b`).test(code) && !new RegExp(`(const|function) ${name}\\b`).test(code))
    .map(([, line]) => line);
  const withServer = code.replaceAll('redis://127.0.0.1:6379', servers.url.replace(/\/0$/, ''));
  return `${withServer}\n${provided.join('\n')}\nconsole.log('end of the snippet');\n`;
}

function run(program) {
  return new Promise((resolve) => {
    const env = { ...process.env, REDIS_URL: servers.url };
    const child = spawn(process.execPath, [program], { env, stdio: ['ignore', 'pipe', 'pipe'] });
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

it('the README shows Node', () => {
  assert.ok(snippets.filter(({ name }) => name.startsWith('README')).length >= 2);
});

describe('a snippet runs to its end, without a warning', () => {
  for (const [index, { name, code }] of snippets.entries()) {
    it(name, async () => {
      const program = join(folder, `${index}.mjs`);
      writeFileSync(program, programOf(code));
      const { stdout, stderr, ended } = await run(program);
      assert.deepEqual({ stderr, ended }, { stderr: '', ended: 0 }, code);
      assert.match(stdout, /end of the snippet\n$/);
    });
  }
});
