// A bundle for an edge runtime. It is built, whatever it imports, and its error explains why it cannot run.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const root = fileURLToPath(new URL('../../', import.meta.url));
const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const ENTRIES = Object.keys(exports).filter((entry) => entry !== './package.json');

// The conditions that bundlers set: Next.js for the Edge runtime, Wrangler, a starter kit of Fastly, a web worker.
const EDGES = [['edge-light'], ['workerd', 'worker', 'browser'], ['fastly', 'edge-light'], ['worker']];

let folder;
before(() => {
  mkdirSync(join(root, '.cache'), { recursive: true });
  folder = mkdtempSync(join(root, '.cache/edge-'));
});
after(() => rmSync(folder, { recursive: true }));

/** Bundles a program that imports every entry for these conditions. Returns the parts of the bundle, and how it ends. */
async function bundled(conditions) {
  const outfile = join(folder, 'bundle.mjs');
  const imports = ENTRIES.map((entry, index) => {
    const name = JSON.stringify(entry.replace('.', 'tidegate'));
    return `import * as all${index} from ${name}; import { Limiter as named${index} } from ${name};`;
  });
  const names = ENTRIES.map((_, index) => `all${index}, named${index}`);
  const { metafile, warnings } = await build({
    stdin: { contents: `${imports.join('\n')}\nconsole.log(${names});`, resolveDir: root },
    bundle: true,
    format: 'esm',
    conditions,
    outfile,
    metafile: true,
    absWorkingDir: root,
    logLevel: 'silent',
  });
  assert.deepEqual(warnings, []);
  return { parts: Object.keys(metafile.inputs), ...spawnSync(process.execPath, [outfile], { encoding: 'utf8' }) };
}

describe('a bundle for an edge runtime', () => {
  for (const conditions of EDGES) {
    it(`is built and says why it cannot run: ${conditions}`, async () => {
      assert(ENTRIES.length > 10);
      const { parts, status, stdout, stderr } = await bundled(conditions);
      assert.deepEqual(parts.toSorted(), ['<stdin>', 'bindings-node/dist/edge.js']);
      assert.deepEqual({ status, stdout }, { status: 1, stdout: '' });
      assert.match(
        stderr,
        /Error: tidegate cannot run in an edge runtime, .*with the Node runtime.*recipes\/serverless/,
      );
    });
  }
});
