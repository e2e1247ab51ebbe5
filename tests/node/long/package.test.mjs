// The package as users get it: packed, installed without scripts, loaded as ESM and as CommonJS, with types for both.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const bin = (name) => join(root, 'node_modules/.bin', name);
const call = promisify(execFile);

let folder;
let tarball;

async function run(cwd, program, ...args) {
  try {
    const { stdout } = await call(program, args, { cwd, maxBuffer: 2 ** 24 });
    return stdout.trim();
  } catch (error) {
    throw new Error(`${program} ${args.join(' ')}\n${error.stdout}\n${error.stderr}`);
  }
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tidegate-'));
  // Without its scripts, which would build everything again.
  const listing = await run(root, 'npm', 'pack', '--ignore-scripts', '--json', '--pack-destination', folder);
  const packed = Object.values(JSON.parse(listing))[0];
  tarball = join(folder, packed.filename);
  cpSync(fileURLToPath(new URL('../consumers/', import.meta.url)), folder, { recursive: true });
  await run(folder, 'npm', 'init', '-y');
  await run(folder, 'npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--offline', tarball);
});
after(() => rmSync(folder, { recursive: true }));

it('contains the built files, and nothing else', async () => {
  const files = (await run(folder, 'tar', '-tzf', tarball)).split('\n').map((line) => line.replace('package/', ''));
  for (const file of files)
    assert.match(file, /^(package\.json|README\.md|LICENSE|CHANGELOG\.md|bindings-node\/(dist|binding)\/.+)$/);
  assert.ok(files.some((file) => file.endsWith('.node')));
});

it('has the command', async () => {
  const command = join(folder, 'node_modules/.bin/tidegate');
  assert.match(await run(folder, command, '--version'), /^tidegate \d/);
  const checked = await run(folder, command, 'check', 'fixed-window 5/minute', 'alice', '--json');
  assert.equal(JSON.parse(checked).remaining, 4);
  const denied = await call(command, ['check', '0/minute', 'alice'], { cwd: folder }).catch((error) => error);
  assert.equal(denied.code, 1);
});

it('every entry has a file and types for ESM and for CommonJS', () => {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const installed = join(folder, 'node_modules/tidegate');
  for (const entry of Object.values(exports).filter((entry) => typeof entry === 'object')) {
    for (const kind of [entry.import, entry.require]) {
      for (const path of [kind.types, kind.default]) assert.ok(existsSync(join(installed, path)), path);
    }
  }
});

describe('its types', () => {
  // This test comes first, because the next one puts the packages of this checkout beside it.
  it('need no types of Node, of a browser or of a framework', async () => {
    assert.ok(!existsSync(join(folder, 'node_modules/@types')));
    const { stdout } = await call(bin('tsc'), ['-p', 'plain'], { cwd: folder }).catch((error) => error);
    assert.equal(stdout, '');
  });

  it('compile in strict projects of both kinds, which then run', async () => {
    // These projects use the frameworks of this checkout.
    for (const name of readdirSync(join(root, 'node_modules'))) {
      const path = join(folder, 'node_modules', name);
      if (!name.startsWith('.') && !existsSync(path)) symlinkSync(join(root, 'node_modules', name), path, 'dir');
    }
    // All declarations are checked. Errors in those of other packages are not ours.
    for (const project of ['.', 'fastify-rate-limit']) {
      const { stdout } = await call(bin('tsc'), ['-p', project], { cwd: folder }).catch((error) => error);
      const lines = stdout.split('\n').filter((line) => line !== '');
      const wrong = lines.filter((line) => !/^[^(]*node_modules\/(?!tidegate\/)/.test(line));
      assert.deepEqual(wrong, []);
    }
    // The compiler replaces `using`, which Node 20 does not have.
    for (const [program, says] of Object.entries({
      'esm/main.js': 'esm',
      'cjs/main.js': 'cjs',
      'esm/adapters.js': 'esm adapters',
      'cjs/adapters.js': 'cjs adapters',
    })) {
      assert.equal(await run(folder, process.execPath, program), says);
    }
  });

  // The resolutions of TypeScript's newest version, and those that it no longer has.
  const newest = bin('tsc');
  const older = join(
    dirname(createRequire(createRequire(import.meta.url).resolve('@arethetypeswrong/core')).resolve('typescript')),
    'tsc.js',
  );
  const resolutions = [
    ['nodenext', [newest], 'nodenext'],
    ['node16', [newest], 'node16'],
    ['bundler', [newest], 'preserve'],
    ['node10', [process.execPath, older], 'commonjs'],
    ['node16', [process.execPath, older], 'node16'],
    ['bundler', [process.execPath, older], 'preserve'],
  ];
  for (const [moduleResolution, compiler, module] of resolutions) {
    const version = compiler.length === 1 ? 'the newest TypeScript' : 'an older TypeScript';
    const compile = async (name, lib, include) => {
      const strict = {
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        skipLibCheck: false,
      };
      const compilerOptions = { ...strict, target: 'es2022', lib, module, moduleResolution, types: [], noEmit: true };
      const config = join(folder, `tsconfig.${name}.json`);
      writeFileSync(config, JSON.stringify({ compilerOptions, include }));
      const [program, ...before] = compiler;
      const { stdout } = await call(program, [...before, '-p', config], { cwd: folder }).catch((error) => error);
      return stdout;
    };

    it(`compile with ${moduleResolution} of ${version}, without the types of Node`, async () => {
      assert.equal(await compile('plain', ['es2022'], ['plain/main.ts']), '');
    });

    it(`take the signals of a browser's types with ${moduleResolution} of ${version}`, async () => {
      assert.equal(await compile('dom', ['es2022', 'dom'], ['plain/*.ts']), '');
    });

    it(`are found for every entry with ${moduleResolution} of ${version}`, async () => {
      const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
      const entries = Object.entries(exports).filter(([, target]) => typeof target === 'object');
      const lines = entries.map(([entry], index) => `import * as entry${index} from 'tidegate${entry.slice(1)}';`);
      mkdirSync(join(folder, 'entries'), { recursive: true });
      const used = `export const all = [${entries.map((_, index) => `entry${index}`)}];\n`;
      writeFileSync(join(folder, 'entries/main.ts'), `${lines.join('\n')}\n${used}`);
      const found = await compile('entries', ['es2022', 'esnext.disposable'], ['entries/main.ts']);
      // Errors in the types of the frameworks are not ours.
      const wrong = found
        .split('\n')
        .filter((line) => line.startsWith('entries/') || /Cannot find module 'tidegate/.test(line));
      assert.deepEqual(wrong, []);
    });
  }

  it('are used by projects of both kinds, for every entry', () => {
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    for (const kind of ['esm', 'cjs']) {
      const programs = ['main.ts', 'adapters.ts']
        .map((name) => readFileSync(join(folder, kind, name), 'utf8'))
        .join('');
      for (const [entry, target] of Object.entries(exports)) {
        const name = `'tidegate${entry.slice(1)}'`;
        assert.ok(typeof target === 'string' || programs.includes(name), `no ${kind} project uses ${name}`);
      }
    }
  });

  it('satisfy publint', async () => {
    await run(root, bin('publint'), '--strict', tarball);
  });

  it('satisfy "are the types wrong"', async () => {
    // Not with TypeScript's node10 resolution, which does not know `exports`.
    await run(root, bin('attw'), '--no-emoji', '--profile', 'node16', tarball);
  });
});
