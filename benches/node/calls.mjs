// Calls that go out by `fetch`: one process is one round of one contender, against a server on another core.
//
// Its arguments are `name=value`: contender, in_flight, core (of the server), warm, seconds. It prints one line of JSON as every
// contender does.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const given = Object.fromEntries(process.argv.slice(2).map((argument) => argument.split(/=(.*)/s, 2)));
/** So many in an hour are never reached, so that nothing waits. */
const MANY = 1_000_000_000;

const contenders = {
  bare: () => fetch,
  async tidegate() {
    const { Limiter } = await import('tidegate');
    const { pacedFetch } = await import('tidegate/fetch');
    return pacedFetch({ limiter: new Limiter(), policy: `${MANY}/hour` });
  },
  async bottleneck() {
    const { default: Bottleneck } = await import('bottleneck');
    const limiter = new Bottleneck({
      reservoir: MANY,
      reservoirRefreshAmount: MANY,
      reservoirRefreshInterval: 3_600_000,
    });
    return limiter.wrap(fetch);
  },
};

const words = ['-c', given.core, process.execPath, fileURLToPath(new URL('hello-server.mjs', import.meta.url))];
const server = spawn('taskset', words, { stdio: ['pipe', 'pipe', 'inherit'] });
const [port] = await once(server.stdout, 'data');
const url = `http://127.0.0.1:${Number(port)}/`;
const call = await contenders[given.contender]();

/** Keeps that many calls in flight until the time has passed: how many there were. */
async function calls(seconds) {
  const until = performance.now() + seconds * 1_000;
  let done = 0;
  const caller = async () => {
    for (; performance.now() < until; done++) await (await call(url)).text();
  };
  await Promise.all(Array.from({ length: Number(given.in_flight) }, caller));
  return done;
}

const before = await calls(Number(given.warm));
const [began, cpu] = [performance.now(), process.cpuUsage()];
const done = await calls(Number(given.seconds));
const took = performance.now() - began;
const { user, system } = process.cpuUsage(cpu);
const beside = { 'client CPU, µs': (user + system) / done };
console.log(JSON.stringify({ value: (done / took) * 1_000, decisions: before + done, beside }));
server.stdin.end();
process.exit();
