// A project without the types of Node and of a browser: those of the package need neither.

import { type Decision, Limiter, Policy } from 'tidegate';
import { fields, problem } from 'tidegate/http';

const limiter = new Limiter({ policies: { login: new Policy('5/minute', { blockFor: '10m' }) } });
const decision: Decision = await limiter.check('login', 'alice', { cost: 1 });
export const wait: number | null = decision.retryAfterMs;
export const headers: Record<string, string> = fields(decision);
export const body: string = problem(decision);
