// Programs that tests run in separate processes, which end with the test.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const ROOT = new URL('../../../', import.meta.url);

/** A Python that has the package, or the reason why it is missing. */
export function python(modules = ['tidegate']) {
  const venv = fileURLToPath(new URL('.cache/venv/bin/python', ROOT));
  const program = process.env.TIDEGATE_PYTHON ?? (existsSync(venv) ? venv : 'python3');
  const { status } = spawnSync(program, ['-c', `import ${modules.join(', ')}`], { stdio: 'ignore' });
  return status === 0
    ? { program }
    : { missing: `${program} has no ${modules.join(', ')}: build the Python package first` };
}

/** Runs a program until the test is over, and reads its output line by line. */
export function running(t, program, words, env = {}) {
  const child = spawn(program, words, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  t.after(() => {
    child.kill();
    return ended;
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    async line() {
      const { done, value } = await lines.next();
      if (done) throw new Error(`${words.join(' ')} ended before it printed a line`);
      return value;
    },
    send: (line) => child.stdin.write(`${line}\n`),
    ended,
  };
}

/** Runs a service, and returns the URL that it prints. */
export async function service(t, program, words, env) {
  const { line } = running(t, program, words, { PORT: '0', ...env });
  const printed = await line();
  const url = /http:\/\/\S+/.exec(printed)?.[0];
  if (url === undefined) throw new Error(`${words.join(' ')} printed ${printed}`);
  // Nest prints a name that may resolve to IPv6.
  return url.replace('[::1]', '127.0.0.1').replace('localhost', '127.0.0.1');
}

export function example(name) {
  return fileURLToPath(new URL(`examples/${name}`, ROOT));
}
