// A store of an application in memory, whole or with one defect of tests/stores/defects.json.

import { setImmediate as turn } from 'node:timers/promises';

const nameOf = (key) => Buffer.from(key).toString('latin1');

export class Table {
  constructor(defect = '') {
    this.defect = defect;
    this.allOrNone = ['', 'promises all or none'].includes(defect);
    this.values = new Map();
    this.writes = 0;
    this.made = Date.now();
  }

  now() {
    if (this.defect === 'has a clock that stands still') return this.made;
    return this.defect === 'returns milliseconds' ? Date.now() * 1000 : Date.now();
  }

  name(key) {
    const name = nameOf(key);
    if (this.defect === 'cuts keys at a zero') return name.split('\0')[0];
    return this.defect === 'has keys without case' ? name.toLowerCase() : name;
  }

  value(key) {
    const kept = this.values.get(this.name(key));
    if (kept === undefined) return null;
    // A store may drop a value later.
    let expiresAt = Infinity;
    if (this.defect === 'takes expires_at for milliseconds') expiresAt = kept.expiresAt / 1000;
    if (this.defect === 'drops a value at its second') expiresAt = Math.floor(kept.expiresAt / 1000) * 1000;
    return Date.now() < expiresAt ? kept.value : null;
  }

  async read(keys) {
    await turn();
    const asked = this.defect === 'sorts the values' ? [...keys].sort(Buffer.compare) : keys;
    const values = asked.map((key) => this.value(key));
    return { now: this.now(), values: this.defect === 'leaves out missing keys' ? values.filter(Boolean) : values };
  }

  async compareAndSwap(changes) {
    const before = changes.map(({ key }) => this.value(key));
    const isTorn = this.defect === 'compares and writes in two steps';
    if (isTorn) await turn();
    const isLost = ({ version }, index) => (before[index]?.version ?? null) !== version;
    if (this.defect === '' && changes.some(isLost)) return { now: this.now(), results: before };
    let results = changes.map((change, index) => {
      const standing = isTorn ? before[index] : this.value(change.key);
      if (this.defect === 'writes the first change alone' && index > 0) return standing;
      return this.swap(change, standing);
    });
    if (this.defect === 'sorts the results') {
      const byKey = changes.map(({ key }, index) => [key, results[index]]);
      results = byKey.sort(([one], [other]) => Buffer.compare(one, other)).map(([, result]) => result);
    }
    return { now: this.now(), results };
  }

  swap({ key, version, data, expiresAt }, standing) {
    const { defect } = this;
    if (defect === 'does not replace a version' && standing) return standing;
    if ((standing?.version ?? null) !== version && defect !== 'ignores the version') {
      if (defect === 'says done for the deletion of nothing' && !standing && data === null) return true;
      return defect === 'says none for a lost swap' ? null : standing;
    }
    this.writes += 1;
    if (data === null) {
      this.values.delete(this.name(key));
      return true;
    }
    let made = this.writes;
    if (defect === 'counts versions anew after a deletion') made = standing ? standing.version + 1 : 1;
    else if (defect === 'keeps the version of a swap' && standing) made = standing.version;
    let kept = data;
    if (defect === 'keeps text') kept = new TextEncoder().encode(new TextDecoder().decode(data));
    else if (defect === 'cuts large values') kept = data.slice(0, 65_536);
    this.values.set(this.name(key), { value: { version: made, data: kept }, expiresAt });
    return true;
  }

  async *scan(prefix) {
    const begin = nameOf(this.defect === 'scans too much' ? prefix.slice(0, 6) : prefix);
    const found = [...this.values.keys()].filter((name) => name.startsWith(begin));
    for (const name of this.defect === 'scans too little' ? found.slice(1) : found) yield Buffer.from(name, 'latin1');
  }
}
