// The files that a fresh process loads with the package. Node takes longer to find, read and wrap each file than to run it.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import process from 'node:process';
import { it } from 'node:test';
import { fileURLToPath } from 'node:url';

const cwd = fileURLToPath(new URL('../../', import.meta.url));

/** The JSON that a program prints in a fresh process. */
function run(program, ...options) {
  return JSON.parse(execFileSync(process.execPath, [...options, '-e', program], { cwd, encoding: 'utf8' }));
}

const FILES = `Object.keys(require.cache).map((path) => path.split(/[\\\\/]/).slice(-2).join('/').replace(/\\.\\w+-.*node$/, '.node'))`;
const OWN = ['binding/index.js', 'binding/tidegate.node', 'dist/bundle.js', 'dist/index.js'];

it('requiring the package loads one file beside its addon', () => {
  assert.deepEqual(run(`require('tidegate'); console.log(JSON.stringify(${FILES}.sort()))`), OWN);
});

it('so does the first check', () => {
  const program = `const { Limiter } = require('tidegate');
    new Limiter({ policies: { login: '20/minute; 5/3s' } }).check('login', 'alice')
      .then(() => console.log(JSON.stringify(${FILES}.sort())));`;
  assert.deepEqual(run(program), OWN);
});

it('and no part of Node for files, servers, streams or workers', () => {
  const program = `const before = new Set(process.moduleLoadList);
    require('tidegate');
    const loaded = process.moduleLoadList.filter((name) => !before.has(name)).map((name) => name.split(' ').at(-1));
    console.log(JSON.stringify(loaded.filter((name) => !name.includes('internal/'))));`;
  assert.deepEqual(run(program).sort(), ['perf_hooks', 'process', 'timers/promises']);
});

it('importing the package gives the same classes as requiring it', () => {
  const program = `const required = require('tidegate');
    import('tidegate').then((imported) =>
      console.log(JSON.stringify(Object.keys(required).filter((name) => imported[name] !== required[name]))));`;
  assert.deepEqual(run(program), []);
});

it('importing the package does not read its file for names', async () => {
  // Node would take 50 ms for that, and would know the names then.
  const names = Object.keys(await import('../../bindings-node/dist/index.js'));
  assert.deepEqual(
    names.filter((name) => name !== 'module.exports'),
    ['default'],
  );
});
