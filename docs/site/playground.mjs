// Tests the playground of the built site. First the command in WebAssembly, which has to answer as the golden files of the command
// say, and whose size is bounded; then the page in headless Chromium, as people use it.
//
//     node docs/site/playground.mjs FOLDER

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { run } from '../javascripts/command.mjs';
import { chromium, openBrowser } from './browser.mjs';

const [folder = '.cache/site'] = process.argv.slice(2);
/// Far more than an answer takes, so that a busy machine is no fault; what it takes is printed.
const SLOW = 4000;
/// What a reader downloads at most, in bytes.
const MOST = 600 * 1024;

const scripts = join(folder, 'javascripts');
const packed = readFileSync(join(scripts, 'tidegate.wasm.zst'));
const { decompress } = await import(pathToFileURL(join(scripts, 'fzstd.mjs')));
// Servers compress scripts themselves.
const size = packed.length + gzipSync(readFileSync(join(scripts, 'fzstd.mjs'))).length;
assert.ok(size <= MOST, `the command has ${size} bytes compressed, with what unpacks it, and at most ${MOST} are wanted`);
const bytes = decompress(packed);
const module = new WebAssembly.Module(bytes);
console.log(`the command: ${bytes.length} bytes, ${packed.length} compressed, ${size} with what unpacks it`);

const tests = new URL('../../cli/tests/', import.meta.url);
const text = (name) => readFileSync(new URL(name, tests), 'utf8');
const files = Object.fromEntries(['tidegate.yaml', 'odd.yaml', 'wrong.yaml', 'units.yaml'].map((name) => [name, text(`files/${name}`)]));
const traces = Object.fromEntries(['access.log', 'calls.jsonl', 'timestamps.txt', 'policies.yaml'].map((name) => [name, text(`simulate/traces/${name}`)]));
const GOLDEN = [
  ['explain', 0, ['explain', '20/minute; 5/3s']],
  ['explain.json', 0, ['explain', '20/minute; 5/3s', '--json']],
  ['explain-named', 0, ['explain', 'reports', 'login', '--policies', 'tidegate.yaml']],
  ['lint', 1, ['lint', 'odd.yaml']],
  ['lint-invalid', 2, ['lint', 'wrong.yaml', 'odd.yaml']],
  ['lint.json', 2, ['lint', 'wrong.yaml', 'odd.yaml', '--json']],
];
for (const [name, code, words] of GOLDEN) {
  const ran = run(module, words, files);
  assert.deepEqual([ran.code, ran.out, ran.error], [code, text(`golden/${name}.txt`), ''], words.join(' '));
}
const FOUR = ['fixed-window 20/minute', '20/minute; 5/3s', 'gcra 20/minute burst 5', 'leaky-bucket 20/minute'];
const SIMULATED = {
  steady: [...FOUR, '--pattern', 'steady'],
  boundary: [...FOUR, '--pattern', 'boundary'],
  'retry-storm-backoff': [...FOUR, ...'--pattern retry-storm --rate 20/s --duration 90s --retry backoff'.split(' ')],
  outgoing: [...FOUR, '--pattern', 'outgoing'],
  timestamps: ['2/s', 'gcra 2/s', '--trace', 'timestamps.txt'],
  'access-log': ['2/10s', 'fixed-window 2/10s', '--trace', 'access.log'],
  'json-lines': ['2/s', '--trace', 'calls.jsonl'],
  'policy-file': 'login trial --policies policies.yaml --pattern steady --rate 5/s --keys 2'.split(' '),
};
for (const [name, words] of Object.entries(SIMULATED)) {
  const ran = run(module, ['simulate', ...words], traces);
  assert.deepEqual([ran.code, ran.out, ran.error], [0, text(`golden/simulate/${name}.txt`), ''], words.join(' '));
}
const count = GOLDEN.length + Object.keys(SIMULATED).length;
console.log(`${count} answers of the command in WebAssembly are those of its golden files`);
const broken = run(module, ['simulate', '5/s', '--pattern', 'steady', '--out', 'x.png']);
assert.ok(broken.code === 2 && broken.error.includes('.svg'), broken.error);

if (!chromium()) {
  console.log('SKIPPED: the page was not tried, since no chromium is in the PATH');
  process.exit();
}

const { site, server, command, open, go, evaluate, close } = await openBrowser(folder);
const session = await open();
const faults = [];
const ask = (expression, at = session) => evaluate(at, expression);
const key = (name, more = {}, at = session) =>
  command('Input.dispatchKeyEvent', { type: 'keyDown', key: name, code: name, windowsVirtualKeyCode: CODES[name], ...more }, at).then(() =>
    command('Input.dispatchKeyEvent', { type: 'keyUp', key: name, code: name, windowsVirtualKeyCode: CODES[name] }, at),
  );
const CODES = { Tab: 9, Home: 36, End: 35, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40 };
const write = (typed) => command('Input.insertText', { text: typed }, session);

/** Waits until an expression holds in the page. */
async function until(what, expression, at = session) {
  for (const began = Date.now(); Date.now() - began < 20_000; ) {
    if (await ask(expression, at)) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  faults.push(what);
}
/** Does something, and waits for the answer of the command to what the address says then. */
async function answered(act) {
  await ask("delete document.querySelector('.playground').dataset.answered");
  await act();
  await until('an answer', "document.querySelector('.playground').dataset.answered === location.hash.slice(1)");
}
const field = (label) => `[...document.querySelectorAll('.playground label')].find((one) => one.textContent === '${label}').control`;
const focus = (label) => ask(`${field(label)}.focus(); ${field(label)}.select?.()`);
/** Replaces what stands in a field. */
const type = async (label, typed) => {
  await focus(label);
  await answered(() => write(typed));
};
const found = (index) => ask(`document.querySelectorAll('.playground-findings')[${index}].textContent`);
const explained = (index) => `document.querySelectorAll('[aria-label="What explain says"]')[${index}].textContent`;
const check = (what, holds) => holds || faults.push(what);
/** Goes on by the Tab key until the field has the focus. */
async function tabTo(label) {
  for (let count = 0; count < 200; count += 1) {
    if (await ask(`document.activeElement === ${field(label)}`)) return;
    await key('Tab');
  }
  faults.push(`${label} is not reached by the Tab key`);
}
const isHidden = (label) => ask(`${field(label)}.getClientRects().length === 0`);

await go(session, `${site}playground/`);
await until('the first answer', "document.querySelector('.playground img')?.naturalWidth > 0");

// What is typed is explained.
await type('Policy', '7/minute');
check('a policy is explained', (await ask(explained(0))).includes('7 in any minute') || (await ask(explained(0))).includes('At most 7'));
check('it says what the command says', (await ask(explained(0))) === run(module, ['explain', '7/minute']).out);

// A wrong one is told with its column, and the picture stays.
await type('Policy', '20/minuet');
check(`the column of an error: ${await found(0)}`, (await found(0)).startsWith('line 1, column 4:') && (await found(0)).includes('\n     ^'));
check('a field says that it is wrong', await ask(`${field('Policy')}.getAttribute('aria-invalid') === 'true'`));
await type('Policy', 'fixed-window');
check(`a word that is no policy: ${await found(0)}`, (await found(0)).includes('no notation'));

// What is valid but odd.
await type('Policy', '10/10s; 600/600s');
check(`a warning: ${await found(0)}`, (await found(0)).startsWith('line 1, column 9: 600') && (await found(0)).endsWith('\n          ^'));

// Two side by side.
await type('Policy', 'fixed-window 20/minute');
await type('Second policy', 'gcra 20/minute burst 5');
check('the second policy is explained', (await ask(explained(1))).startsWith('gcra 20/minute burst 5'));
const panels = 'decodeURIComponent(document.querySelector(".playground img").src)';
check('both are drawn', (await ask(panels)).includes('gcra 20/minute burst 5') && (await ask(panels)).includes('fixed-window 20/minute'));

// How long an answer takes after a key.
const times = [];
for (const typed of ['30/minute', '30/minute; 5/s', '100/s', 'sliding-log 50/minute', '1000/hour; 10/s']) {
  await type('Policy', typed);
  times.push(await ask("Number(document.querySelector('.playground').dataset.milliseconds)"));
}
console.log(`milliseconds from a key to its answer: ${times.join(', ')}`);
check(`an answer takes too long: ${times}`, times.every((time) => time < SLOW));

// With the keyboard alone: to the traffic, another pattern, and bars that are drawn.
await ask(`${field('Policy')}.focus()`);
await tabTo('Traffic');
await answered(() => key('End'));
check('the keyboard chooses the traffic', await ask(`${field('Traffic')}.value === 'drawn'`));
check('what does not count is hidden', (await isHidden('Rate')) && !(await isHidden('Seconds')));
await tabTo('Calls at most');
await key('Tab');
check('the bars are reached', await ask("document.activeElement.getAttribute('role') === 'slider'"));
await key('ArrowRight');
await key('ArrowRight');
await answered(() => key('End'));
check('a bar is drawn', await ask("document.activeElement.getAttribute('aria-valuenow') === '10' && document.activeElement.getAttribute('aria-label') === 'Calls from 3 s'"));
await answered(() => key('ArrowDown'));
check('a bar is changed', await ask("document.activeElement.getAttribute('aria-valuetext') === '9 calls'"));

// With a pointer.
const box = await ask("(({ left, top, width, height }) => ({ left, top, width, height }))(document.querySelector('.playground-bars').getBoundingClientRect())");
const point = { x: box.left + box.width * 0.988, y: box.top + box.height * 0.5, button: 'left', buttons: 1, clickCount: 1 };
await ask("document.querySelector('.playground-bars').scrollIntoView({ block: 'center' })");
point.y = (await ask("document.querySelector('.playground-bars').getBoundingClientRect().top")) + box.height * 0.5;
await answered(() => command('Input.dispatchMouseEvent', { type: 'mousePressed', ...point }, session));
await command('Input.dispatchMouseEvent', { type: 'mouseReleased', ...point, buttons: 0 }, session);
check('a pointer draws', await ask("document.querySelectorAll('[role=slider]')[39].getAttribute('aria-valuenow') === '5'"));

// The link holds all of it.
const shown = 'JSON.stringify([...document.querySelectorAll(".playground :is(textarea, input, select)")].map((one) => one.value)) + document.querySelector(".playground").innerText';
const address = await ask('location.href');
const other = await open();
await go(other, address);
await until('the answer of a link', "document.querySelector('.playground img')?.naturalWidth > 0", other);
check('a link shows the same', (await ask(shown, other)) === (await ask(shown)));
check('a link draws the same', (await ask(panels, other)) === (await ask(panels)));
await ask('scrollTo(0, document.body.scrollHeight)');
await new Promise((resolve) => setTimeout(resolve, 300));
check('scrolling leaves the address', (await ask('location.href')) === address);

// Of files, all policies, and the place of what is wrong.
await ask(`${field('Written as')}.focus()`);
await answered(() => key('End'));
check('a notation becomes a file', await ask(`${field('Policy')}.value.startsWith('policies:\\n  policy-1: 1000/hour; 10/s\\n  policy-2: gcra')`));
check('all policies of a file are explained', (await ask(explained(0))).includes('policy-2  gcra 20/minute burst 5'));
await type('Policy', 'policies:\n  login: 20/minuet\n');
check(`the place in a file: ${await found(0)}`, (await found(0)).startsWith('line 2, column 13:'));
await type('Policy', 'policies:\n  search: 10/10s; 600/600s\n');
check(`the place of a warning: ${await found(0)}`, (await found(0)).startsWith('line 2, column 19: search: 600'));

// Back to a notation.
await ask(`${field('Written as')}.focus()`);
await answered(() => key('Home'));

// Without a network: no server, and the cache is not asked either.
await new Promise((resolve) => {
  server.close(resolve);
  server.closeAllConnections();
});
await type('Policy', '12/minute');
check('it works without a network', (await ask(explained(0))).includes('12'));

// What takes too long is ended, and what is typed then is answered.
await ask(`${field('Traffic')}.focus()`);
await answered(() => key('Home'));
await type('Duration', '30s');
await focus('Rate');
await write('1M/s');
await until('an answer that takes too long is ended', "document.querySelector('.playground figcaption').textContent.startsWith('No answer')");
await type('Rate', '2/s');
check('the next question is answered', (await ask("document.querySelector('.playground figcaption').textContent")).includes('60 calls'));

// On a phone, in the dark.
await command('Emulation.setDeviceMetricsOverride', { width: 390, height: 844, deviceScaleFactor: 2, mobile: true }, session);
await answered(() => ask("document.body.setAttribute('data-md-color-scheme', 'slate')"));
check('the picture is dark', (await ask(panels)).includes('#161B22'));
check('nothing is wider than a phone', await ask('document.documentElement.scrollWidth <= 390'));

for (const fault of faults) console.log(`playground: not so: ${fault}`);
console.log(`the playground was used, ${faults.length} faults`);
await close();
process.exitCode = faults.length ? 1 : 0;
