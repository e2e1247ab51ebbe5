// Completes package-lock.json with the binaries of other platforms.
//
// A registry mirror may carry only the binaries of its own platform. `npm install` then leaves the others out of the lock
// file, and `npm ci` refuses it, here and everywhere. They are all optional and all of one pinned version, so they can be
// named without being fetched. Run it after every `npm install` that changed the lock file.

import { readFileSync, writeFileSync } from 'node:fs';

const file = new URL('../package-lock.json', import.meta.url);
const lock = JSON.parse(readFileSync(file, 'utf8'));
const { packages } = lock;

const systems = { darwin: 'darwin', win32: 'win32', linux: 'linux', android: 'android', freebsd: 'freebsd' };
const machines = {
  x64: 'x64',
  arm64: 'arm64',
  arm: 'arm',
  ia32: 'ia32',
  riscv64: 'riscv64',
  s390x: 's390x',
  ppc64: 'ppc64',
};

/** Where npm puts a package that is asked for there: as far up as it finds one. */
function found(from, name) {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    const path = `${at === '' ? '' : `${at}/`}node_modules/${name}`;
    if (packages[path] !== undefined) return true;
    if (at === '') return false;
  }
}

for (let changed = true; changed; ) {
  changed = false;
  for (const [at, { optionalDependencies = {}, dev }] of Object.entries(packages)) {
    for (const [name, range] of Object.entries(optionalDependencies)) {
      if (at === '' || found(at, name)) continue;
      const words = name.split(/[/-]/);
      const entry = { version: range.replace(/^[\^~]/, '') };
      const os = words.map((word) => systems[word]).filter(Boolean);
      const cpu = words.map((word) => machines[word]).filter(Boolean);
      if (cpu.length > 0) entry.cpu = cpu;
      if (dev) entry.dev = true;
      entry.optional = true;
      if (os.length > 0) entry.os = os;
      packages[`node_modules/${name}`] = entry;
      changed = true;
      console.log(`${name}@${entry.version}`);
    }
  }
}

lock.packages = Object.fromEntries(Object.entries(packages).sort(([a], [b]) => (a < b ? -1 : 1)));
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
