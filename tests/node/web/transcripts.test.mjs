// The behaviour of adapters for a request, from the first function of the application to the last units that go back.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { adapters } from './adapters.mjs';
import { cases, known, transcript } from './transcripts.mjs';

const transcripts = known();
for (const adapter of adapters) {
  describe(adapter.name, () => {
    for (const one of cases()) {
      test(one.name, async () => {
        const group = transcripts[one.name].find(({ adapters }) => adapters.includes(adapter.name));
        assert.deepEqual(await transcript(adapter, one), group.lines);
      });
    }
  });
}
