// The cost of one awaited check in memory, in wall time and in CPU time: a busy machine lengthens only the wall time.

import { Limiter } from 'tidegate';

const KEYS = 1_000;
const CHECKS = 1_000_000;

const keys = Array.from({ length: KEYS }, (_, index) => `user:${index}`);
const limiter = new Limiter();

for (const policy of ['gcra 1000000/s', '1000000/minute; 1000000/hour', 'fixed-window 1/hour']) {
  const round = async () => {
    const [cpu, began] = [process.cpuUsage(), process.hrtime.bigint()];
    for (let index = 0; index < CHECKS; index++) await limiter.check(policy, keys[index % KEYS]);
    const { user, system } = process.cpuUsage(cpu);
    return { wall: Number(process.hrtime.bigint() - began) / CHECKS, cpu: ((user + system) * 1000) / CHECKS };
  };
  await round();
  const rounds = [await round(), await round(), await round()];
  const least = (name) => Math.min(...rounds.map((one) => one[name])).toFixed(0);
  console.log(`${policy.padEnd(30)} ${least('wall')} ns (${least('cpu')} ns of CPU) per awaited check at ${KEYS} keys`);
}
