// An addon that cannot be loaded: in a bundle, on a machine for which it is not installed, and when the file is broken.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const root = fileURLToPath(new URL('../../', import.meta.url));
const PROGRAM = `
const { Limiter } = require('tidegate');
new Limiter().check('5/minute', 'a').then(({ remaining }) => console.log(remaining));
`;

let folder;
before(() => {
  // In this checkout, so that 'tidegate' is this package.
  mkdirSync(join(root, '.cache'), { recursive: true });
  folder = mkdtempSync(join(root, '.cache/addon-'));
  writeFileSync(join(folder, 'app.cjs'), PROGRAM);
});
after(() => rmSync(folder, { recursive: true }));

function run(file) {
  const { stdout, stderr } = spawnSync(process.execPath, [file], { encoding: 'utf8' });
  return { stdout: stdout.trim(), stderr };
}

describe('a bundle by esbuild', () => {
  async function bundled(name, options) {
    const outfile = join(folder, name, 'app.cjs');
    const settings = { bundle: true, platform: 'node', logLevel: 'silent', outfile };
    await build({ entryPoints: [join(folder, 'app.cjs')], ...settings, ...options });
    return run(outfile);
  }

  it('without the addon says so, and the way out', async () => {
    const { stdout, stderr } = await bundled('without', { external: ['*.node'] });
    assert.equal(stdout, '');
    assert.match(stderr, /ConfigError: tidegate is part of a bundle in .*without, and its compiled addon for \w+ \w+/);
    assert.match(stderr, /mark 'tidegate' as external \(esbuild: --external:tidegate; webpack: externals: /);
    assert.match(stderr, /cause.*tidegate.*\.node/s);
    assert.doesNotMatch(stderr, /npm has a bug|package-lock/);
  });

  it('with the package left out works', async () => {
    assert.deepEqual(await bundled('external', { external: ['tidegate'] }), { stdout: '4', stderr: '' });
  });

  it('with the addon copied beside it works', async () => {
    assert.deepEqual(await bundled('copied', { loader: { '.node': 'copy' } }), { stdout: '4', stderr: '' });
  });
});

describe('an installed package', () => {
  /** A copy of the package, with this text in place of its addon. */
  function installed(name, addon, program = PROGRAM) {
    const copy = join(folder, name);
    for (const part of ['package.json', 'bindings-node/dist', 'bindings-node/binding']) {
      cpSync(join(root, part), join(copy, part), { recursive: true });
    }
    const binding = join(copy, 'bindings-node/binding');
    for (const file of readdirSync(binding).filter((file) => file.endsWith('.node'))) {
      rmSync(join(binding, file));
      if (addon !== undefined) writeFileSync(join(binding, file), addon);
    }
    writeFileSync(join(copy, 'app.cjs'), program);
    return run(join(copy, 'app.cjs'));
  }

  it('without the addon of this machine says which one is missing', () => {
    const { stdout, stderr } = installed('missing');
    assert.equal(stdout, '');
    assert.match(
      stderr,
      /ConfigError: the compiled addon of tidegate for \w+ \w+ is not installed\. .*--omit=optional/,
    );
    assert.doesNotMatch(stderr, /npm has a bug|package-lock|part of a bundle/);
  });

  it('without the addon says so to everyone who asks', () => {
    const program = `for (let time = 0; time < 2; time++) try { require('tidegate') } catch (error) { console.log(error.code) }`;
    assert.equal(installed('twice', undefined, program).stdout, 'config_invalid\nconfig_invalid');
  });

  it('with a broken addon says why it cannot be loaded', () => {
    const { stdout, stderr } = installed('broken', 'no library');
    assert.equal(stdout, '');
    assert.match(stderr, /ConfigError: the compiled addon of tidegate for \w+ \w+ cannot be loaded: .*\.node/);
    assert.doesNotMatch(stderr, /npm has a bug|package-lock|part of a bundle/);
  });
});
