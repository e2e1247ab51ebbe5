// The cost of a limiter in an Express service: requests per second and CPU time per request, compared with the same service without
// a limiter.
//
//     node benches/node/http.mjs [seconds] [rounds]
//
// The server has one core; the client and Redis share another. The contenders take turns, so that a disturbance affects all of them,
// and medians are compared.

import { spawn, spawnSync } from 'node:child_process';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Servers } from '../../tests/servers/servers.mjs';

const SECONDS = Number(process.argv[2] ?? 3);
const ROUNDS = Number(process.argv[3] ?? 7);
const CONNECTIONS = 64;
const CONTENDERS = ['bare', 'tidegate', 'tidegate, memory', 'rate-limiter-flexible', 'express-rate-limit'];
const [SERVER_CORE, CLIENT_CORE] = ['0', '1'];
const pins = spawnSync('taskset', ['-V']).status === 0;
const AUTOCANNON = fileURLToPath(new URL('../../node_modules/autocannon/autocannon.js', import.meta.url));

function pinned(core, words, options) {
  return pins ? spawn('taskset', ['-c', core, ...words], options) : spawn(words[0], words.slice(1), options);
}

/** Starts a server. It answers each line with its CPU time. */
function serve(contender, url) {
  const script = fileURLToPath(new URL('http-server.mjs', import.meta.url));
  const child = pinned(SERVER_CORE, [process.execPath, script, contender, url], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => Number((await lines.next()).value);
  return {
    port: line(),
    cpu() {
      child.stdin.write('\n');
      return line();
    },
    close: () => child.stdin.end(),
  };
}

/** Sends requests for that many seconds: how many there were. */
async function load(port, seconds) {
  const command = [
    process.execPath,
    AUTOCANNON,
    '-j',
    '-n',
    '-c',
    CONNECTIONS,
    '-d',
    seconds,
    `http://127.0.0.1:${port}/`,
  ];
  const child = pinned(CLIENT_CORE, command.map(String), { stdio: ['ignore', 'pipe', 'ignore'] });
  let report = '';
  for await (const chunk of child.stdout) report += chunk;
  const { requests, non2xx, errors } = JSON.parse(report);
  if (non2xx + errors > 0) throw new Error(`${non2xx} requests were refused, ${errors} failed`);
  return { rate: requests.average, total: requests.total };
}

function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

const redis = await Servers.start();
const pid = Number(/process_id:(\d+)/.exec(await redis.command(['INFO', 'server']))[1]);
if (pins) spawnSync('taskset', ['-a', '-p', '-c', CLIENT_CORE, String(pid)]);
try {
  const servers = CONTENDERS.map((contender) => ({
    contender,
    server: serve(contender, redis.url),
    rates: [],
    costs: [],
  }));
  for (const { server } of servers) await load(await server.port, 1);
  for (let round = 0; round < ROUNDS; round++) {
    process.stderr.write(`\rround ${round + 1} of ${ROUNDS} …`);
    for (const { server, rates, costs } of servers) {
      const before = await server.cpu();
      const { rate, total } = await load(await server.port, SECONDS);
      rates.push(rate);
      costs.push(((await server.cpu()) - before) / total);
    }
  }
  process.stderr.write('\r');
  const [bare] = servers;
  console.log(
    `${''.padEnd(24)}${'requests/s'.padStart(12)}${'kept'.padStart(8)}${'CPU µs'.padStart(10)}${'kept'.padStart(8)}`,
  );
  for (const { contender, server, rates, costs } of servers) {
    const [rate, cost] = [median(rates), median(costs)];
    const kept = median(rates.map((rate, round) => rate / bare.rates[round]));
    const keptCpu = median(costs.map((cost, round) => bare.costs[round] / cost));
    console.log(
      contender.padEnd(24) +
        Math.round(rate).toString().padStart(12) +
        kept.toFixed(3).padStart(8) +
        cost.toFixed(1).padStart(10) +
        keptCpu.toFixed(3).padStart(8),
    );
    server.close();
  }
} finally {
  await redis.close();
}
