// Puts the modules that `require('tidegate')` loads into one file, `bundle.js`: to find, read and wrap each of 33 files takes
// Node longer than to run them. Each keeps a file of its own that names it there, for the other entries of the package.

import { readFileSync, writeFileSync } from 'node:fs';

const dist = new URL('../dist/', import.meta.url);
const REQUIRE = /\brequire\("\.\/([\w-]+\.js)"\)/g;
const parts = new Map();

function add(name) {
  if (parts.has(name)) return;
  const code = readFileSync(new URL(name, dist), 'utf8');
  parts.set(name, code.replaceAll(REQUIRE, 'part("$1")'));
  for (const [, other] of code.matchAll(REQUIRE)) add(other);
}

add('index.js');
const functions = Array.from(parts, ([name, code]) => `"${name}"(exports) {\n${code}},\n`);
writeFileSync(
  new URL('bundle.js', dist),
  `"use strict";
const parts = {
${functions.join('')}};
const loaded = {};
function part(name) {
  if (name in loaded) return loaded[name];
  loaded[name] = {};
  try {
    parts[name](loaded[name]);
  } catch (error) {
    // The next call tries again, and throws again.
    delete loaded[name];
    throw error;
  }
  return loaded[name];
}
module.exports = part;
`,
);
// In one expression Node would read the bundle for the names of its exports, which costs an `import` 50 ms.
for (const name of parts.keys()) {
  writeFileSync(
    new URL(name, dist),
    `"use strict";\nconst part = require("./bundle.js");\nmodule.exports = part("${name}");\n`,
  );
}
