import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const program = (name) => fileURLToPath(new URL(`programs/${name}`, import.meta.url));

/** Runs a program of `programs/` to its end, and returns its output. A program that does not end is killed, and the test fails. */
export function run(name, ...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--expose-gc', program(name), ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
    let output = '';
    child.stdout.on('data', (data) => {
      output += data;
    });
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(output.trim());
      else reject(new Error(`${name} ended with ${code ?? signal} and printed ${output}`));
    });
  });
}
