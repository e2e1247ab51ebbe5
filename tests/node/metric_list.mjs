// The metrics that docs/metrics.md lists: every exporter has exactly these.

import { readFileSync } from 'node:fs';

const text = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
const line = /^\| `(tidegate_\w+)` \| (\w+) \| ([^|]*) \| `(tidegate\.[\w.]+)` \|/gm;

export const LISTED = [...text.matchAll(line)].map(([, name, kind, labels, dotted]) => ({
  name,
  kind,
  labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label),
  dotted,
}));
if (LISTED.length < 15) throw new Error('docs/metrics.md has no list of metrics');
