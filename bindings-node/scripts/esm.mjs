// Writes the ESM file of every entry of the package. It only names what the CommonJS file exports: so there is one Limiter and
// one TidegateError in a process, however it is loaded.

import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';

const root = new URL('../../', import.meta.url);
const { exports } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'));

for (const entry of Object.values(exports)) {
  if (typeof entry === 'string') continue;
  const file = new URL(entry.require.default, root);
  const code = readFileSync(file, 'utf8');
  const found = code.matchAll(/\bexports\.(\w+) = |^Object\.defineProperty\(exports, "(\w+)"/gm);
  const names = [...new Set([...found].map(([, assigned, defined]) => assigned ?? defined))];
  const named = names.filter((name) => name !== '__esModule' && name !== 'default').sort();
  const source = `./${basename(file.pathname)}`;
  const lines = names.includes('default') ? ['export default module.default;\n'] : [];
  if (named.length > 0) lines.push(`export const { ${named.join(', ')} } = module;\n`);
  // What ESM imports as the default of a CommonJS file is the whole module.
  const types = names.includes('default')
    ? [`import module from '${source}';\n\ndeclare const exported: typeof module.default;\nexport default exported;\n`]
    : [];
  writeFileSync(new URL(entry.import.default, root), `import module from '${source}';\n\n${lines.join('')}`);
  writeFileSync(new URL(entry.import.types, root), `export * from '${source}';\n${types.join('')}`);
}
