import assert = require('node:assert/strict');
import tidegate = require('tidegate');

async function main(): Promise<void> {
  const limiter = new tidegate.Limiter();
  const decision: tidegate.Decision = await limiter.check('5/minute', 'alice');
  assert.equal(decision.remaining, 4);
  const loaded = await import('tidegate');
  assert.equal(loaded.Limiter, tidegate.Limiter);
  await limiter.close();
  console.log('cjs');
}

void main();
