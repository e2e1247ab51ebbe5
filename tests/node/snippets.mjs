// The Node blocks of the READMEs and of the pages in docs, and what they take for granted. tests/python/snippets.py has the
// rules of all languages.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('../../', import.meta.url));

const LANGUAGES = ['js', 'ts'];
const FENCE =
  /(?:^ *<!-- not run: (?<reason>.+?) -->\n(?: *\n)?)?^(?<indent> *)```(?<language>\w*)[^\n`]*\n(?<code>.*?)^\k<indent>```$/gms;

/** What a block takes for granted: what an earlier block of the page, or the reader's program, has made. */
const PROVIDED = {
  send: 'async function send(user) { return user; }',
  limiter: "import { Limiter as ProvidedLimiter } from 'tidegate'; const limiter = new ProvidedLimiter();",
  app: "import providedExpress from 'express'; const app = providedExpress();",
  rateLimit: "import { rateLimit } from 'tidegate/express';",
};

function markdownIn(folder) {
  const entries = readdirSync(join(root, folder), { recursive: true });
  return entries.filter((name) => name.endsWith('.md')).map((name) => `${folder}/${name}`);
}

/** Every Node block that runs: `{ name, language, code }`. */
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
    return Array.from(text.matchAll(FENCE), ({ groups, index }) => ({
      name: `${document}:${text.slice(0, index).split('\n').length}`,
      language: groups.language,
      reason: groups.reason,
      code: groups.code.replaceAll(new RegExp(`^${groups.indent}`, 'gm'), ''),
    })).filter(({ language, reason }) => LANGUAGES.includes(language) && reason === undefined);
  });
}

/** A block as a program, whose last line says that it ran to its end. Its servers listen on any port, and end with it. */
export function programOf(code, redisUrl) {
  const declares = (name) =>
    new RegExp(`(const|let|function|class) ${name}\\b|import [^;]*\\b${name}\\b[^;]* from`).test(code);
  const provided = Object.entries(PROVIDED)
    .filter(([name]) => new RegExp(`(?<![.'\\w])${name}\\b(?!:)`).test(code) && !declares(name))
    .map(([, lines]) => lines);
  const runnable = code
    .replaceAll('redis://127.0.0.1:6379', redisUrl.replace(/\/0$/, ''))
    .replaceAll(/\blisten\(3000\)/g, 'listen(0)')
    .replaceAll(/\bport: 3000\b/g, 'port: 0');
  const listens =
    runnable === code.replaceAll('redis://127.0.0.1:6379', redisUrl.replace(/\/0$/, '')) ? '' : 'process.exit();';
  return `${provided.join('\n')}\n${runnable}\nconsole.log('end of the snippet');\n${listens}\n`;
}
