// The Node blocks of the READMEs and of the pages in docs. tests/python/snippets.py has the rules of all languages.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));

const LANGUAGES = ['js', 'ts'];
const FENCE = /^(?<indent> *)```(?<language>\w*)(?<more>[^\n`]*)\n(?<code>.*?)^\k<indent>```$/gms;

function markdownIn(folder) {
  const entries = readdirSync(join(root, folder), { recursive: true });
  return entries.filter((name) => name.endsWith('.md')).map((name) => `${folder}/${name}`);
}

/** Every Node block that runs by itself: `{ name, language, code }`. Files of a page that is followed are no such blocks. */
export function snippets() {
  const documents = [
    'README.md',
    'bindings-node/README.md',
    'bindings-python/README.md',
    'core/README.md',
    ...markdownIn('docs'),
  ];
  return documents.sort().flatMap((document) => {
    const text = readFileSync(join(root, document), 'utf8');
    const isFollowed = text.includes('```sh title="server"') || text.includes('<!-- followed -->');
    return Array.from(text.matchAll(FENCE), ({ groups, index }) => ({
      name: `${document}:${text.slice(0, index).split('\n').length}`,
      language: groups.language,
      isAlone: !(isFollowed && groups.more.includes('title=')),
      code: groups.code.replaceAll(new RegExp(`^${groups.indent}`, 'gm'), ''),
    })).filter(({ language, isAlone }) => LANGUAGES.includes(language) && isAlone);
  });
}

/** A block as a program, whose last line says that it ran to its end. Its servers listen on any port, and end with it. */
export function programOf(code, redisUrl) {
  const here = code.replaceAll('redis://127.0.0.1:6379', redisUrl.replace(/\/0$/, ''));
  const runnable = here.replaceAll(/\blisten\(3000\)/g, 'listen(0)').replaceAll(/\bport: 3000\b/g, 'port: 0');
  const listens = runnable === here ? '' : 'process.exit();';
  return `${runnable}\nconsole.log('end of the snippet');\n${listens}\n`;
}
