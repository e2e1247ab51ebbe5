// The packages of a release on npm: one for each platform, and one that depends on them. Each machine loads the right one.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../../', import.meta.url));
const call = promisify(execFile);

const PLATFORMS = {
  'linux-x64-gnu': { os: 'linux', cpu: 'x64', libc: 'glibc' },
  'linux-arm64-gnu': { os: 'linux', cpu: 'arm64', libc: 'glibc' },
  'linux-x64-musl': { os: 'linux', cpu: 'x64', libc: 'musl' },
  'linux-arm64-musl': { os: 'linux', cpu: 'arm64', libc: 'musl' },
  'darwin-x64': { os: 'darwin', cpu: 'x64' },
  'darwin-arm64': { os: 'darwin', cpu: 'arm64' },
  'win32-x64-msvc': { os: 'win32', cpu: 'x64' },
  'win32-arm64-msvc': { os: 'win32', cpu: 'arm64' },
};
const names = Object.keys(PLATFORMS).sort();
const binding = join(root, 'bindings-node/binding');
const here = readdirSync(binding).find((name) => name.endsWith('.node'));

let workspace;
let installed;
const packages = {};

/** Unpacks a package as npm installs it. */
async function unpacked(tarball) {
  const folder = mkdtempSync(join(workspace, 'unpacked-'));
  await call('tar', ['-xzf', tarball, '-C', folder, '--strip-components=1']);
  return { folder, manifest: JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) };
}

before(async () => {
  mkdirSync(join(root, '.cache'), { recursive: true });
  workspace = mkdtempSync(join(root, '.cache/npm-test-'));
  mkdirSync(join(workspace, 'artifacts'));
  // The binaries of other platforms need not be real to be packed.
  for (const name of names) writeFileSync(join(workspace, `artifacts/tidegate.${name}.node`), name);
  copyFileSync(join(binding, here), join(workspace, 'artifacts', here));
  await call('bash', ['scripts/npm_release.sh', '--pack', workspace.slice(root.length)], { cwd: root });
  for (const file of readdirSync(join(workspace, 'tarballs'))) {
    const { folder, manifest } = await unpacked(join(workspace, 'tarballs', file));
    packages[manifest.name] = { folder, manifest };
  }
  installed = packages.tidegate;
});
after(() => workspace && rmSync(workspace, { recursive: true }));

it('there is one package for each platform of package.json', () => {
  assert.deepEqual(Object.keys(packages).sort(), ['tidegate', ...names.map((name) => `tidegate-${name}`)]);
  const { napi } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  assert.equal(napi.targets.length, names.length);
});

for (const [name, { os, cpu, libc }] of Object.entries(PLATFORMS)) {
  it(`tidegate-${name} contains its binary, and names its platform`, () => {
    const { folder, manifest } = packages[`tidegate-${name}`];
    const binary = `tidegate.${name}.node`;
    assert.deepEqual(readdirSync(folder).sort(), ['README.md', 'package.json', binary].sort());
    assert.deepEqual([manifest.os, manifest.cpu, manifest.libc], [[os], [cpu], libc && [libc]]);
    assert.deepEqual([manifest.main, manifest.version], [binary, installed.manifest.version]);
    assert.equal(manifest.license, 'MIT');
    if (binary !== here) assert.equal(readFileSync(join(folder, binary), 'utf8'), name);
  });
}

it('the main package depends on all of them, contains no binary, and builds nothing', () => {
  const { folder, manifest } = installed;
  const wanted = Object.fromEntries(names.map((name) => [`tidegate-${name}`, manifest.version]));
  assert.deepEqual(manifest.optionalDependencies, wanted);
  assert.equal(manifest.scripts, undefined);
  assert.equal(manifest.devDependencies, undefined);
  assert.deepEqual(readdirSync(join(folder, 'bindings-node/binding')).sort(), ['index.d.ts', 'index.js']);
  assert.ok(existsSync(join(folder, 'bindings-node/dist/index.mjs')));
  // npm shows this file, because the README of the repository is about three languages.
  const readme = readFileSync(join(folder, 'README.md'), 'utf8');
  assert.equal(readme, readFileSync(join(root, 'bindings-node/README.md'), 'utf8'));
});

it('the main package works with the binary of this machine', async () => {
  const modules = join(workspace, 'project/node_modules');
  mkdirSync(modules, { recursive: true });
  const own = here.split('.')[1];
  for (const name of ['tidegate', `tidegate-${own}`]) {
    await call('cp', ['-r', packages[name].folder, join(modules, name)]);
  }
  const program = `require('tidegate').Limiter.fromFile; new (require('tidegate').Limiter)().check('5/s', 'a')
    .then(({ remaining }) => console.log(remaining))`;
  const { stdout } = await call(process.execPath, ['-e', program], { cwd: join(workspace, 'project') });
  assert.equal(stdout.trim(), '4');
});

/** Runs the loader as on another machine, and prints which packages it asks for. */
const MACHINE = `
  const [loader, platform, arch, ldd, report] = process.argv.slice(1);
  const Module = require('node:module');
  const fs = require('node:fs');
  const childProcess = require('node:child_process');
  Object.defineProperty(process, 'platform', { value: platform });
  Object.defineProperty(process, 'arch', { value: arch });
  const read = fs.readFileSync;
  fs.readFileSync = (path, ...rest) => {
    if (path !== '/usr/bin/ldd') return read(path, ...rest);
    if (ldd === '') throw new Error('no such file');
    return ldd;
  };
  process.report.getReport = () => JSON.parse(report);
  childProcess.execSync = () => { throw new Error('no such program'); };
  const asked = [];
  const resolve = Module._resolveFilename;
  Module._resolveFilename = (request, ...rest) => {
    if (request.startsWith('tidegate-')) asked.push(request);
    return resolve(request, ...rest);
  };
  let message = 'loaded';
  try { require(loader); } catch (error) { message = error.message; }
  console.log(JSON.stringify({ asked, message }));
`;

const GLIBC = { header: { glibcVersionRuntime: '2.36' }, sharedObjects: ['/lib/x86_64-linux-gnu/libc.so.6'] };
const MUSL = { header: {}, sharedObjects: ['/lib/ld-musl-x86_64.so.1'] };
const LINUX = {
  'glibc by its ldd': ['#! /bin/bash\n# Copyright (C) 1996 the GNU C Library', MUSL, 'gnu'],
  'musl by its ldd': ['#!/bin/sh\nexec /lib/ld-musl-x86_64.so.1 --list', GLIBC, 'musl'],
  'glibc without ldd': ['', GLIBC, 'gnu'],
  'musl without ldd': ['', MUSL, 'musl'],
};
const machines = [];
for (const arch of ['x64', 'arm64']) {
  for (const [how, [ldd, report, libc]] of Object.entries(LINUX)) {
    machines.push({
      title: `Linux ${arch}, ${how}`,
      platform: 'linux',
      arch,
      ldd,
      report,
      first: `linux-${arch}-${libc}`,
    });
  }
  machines.push({ title: `macOS ${arch}`, platform: 'darwin', arch, first: `darwin-${arch}`, universal: true });
  machines.push({ title: `Windows ${arch}`, platform: 'win32', arch, first: `win32-${arch}-msvc` });
}

for (const { title, platform, arch, ldd = '', report = GLIBC, first, universal } of machines) {
  it(`${title} loads ${first}`, async () => {
    const loader = join(installed.folder, 'bindings-node/binding/index.js');
    const words = ['-e', MACHINE, loader, platform, arch, ldd, JSON.stringify(report)];
    const { stdout } = await call(process.execPath, words);
    const { asked, message } = JSON.parse(stdout);
    // The package is not installed here, so the test sees which one is asked for first, and the error that it is missing.
    const wanted = asked.filter((name) => !name.endsWith('/package.json') && !name.includes('wasm'));
    assert.deepEqual(wanted, [...(universal ? ['tidegate-darwin-universal'] : []), `tidegate-${first}`]);
    assert.match(message, /Cannot find native binding/);
  });
}
