// Looks at each page of the built site in headless Chromium, 1280 and 390 pixels wide, light and dark: nothing is wider than the
// page, every image is there, and every text has enough contrast (4.5 to 1, large text 3 to 1).
//
//     node docs/site/look.mjs FOLDER [WORD OF A PAGE'S PATH …]
//
// It needs chromium in the PATH. Node drives it over its own protocol, so nothing has to be installed beside it.

import { spawn } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, relative } from 'node:path';

const [folder = '.cache/site', ...words] = process.argv.slice(2);
const TYPES = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.svg': 'image/svg+xml', '.png': 'image/png' };
const WIDTHS = [1280, 390];
const SCHEMES = ['default', 'slate'];

/** Runs in the page: what is wrong with it. */
function faults() {
  const found = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    const wide = [...document.querySelectorAll('.md-content *')].filter((part) => part.getBoundingClientRect().right > width + 1);
    const outer = wide.find((part) => !part.closest('pre, .md-typeset__scrollwrap, .tabbed-labels'));
    found.push(`wider than the page: ${document.documentElement.scrollWidth} px, ${outer?.outerHTML.slice(0, 90) ?? 'unknown'}`);
  }
  for (const image of document.images) {
    if (!image.complete || image.naturalWidth === 0) found.push(`no image: ${image.src}`);
  }
  const parsed = (color) => {
    const numbers = color.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    return { red: numbers[0], green: numbers[1], blue: numbers[2], alpha: numbers[3] ?? 1 };
  };
  const over = (front, back) => ({
    red: front.red * front.alpha + back.red * (1 - front.alpha),
    green: front.green * front.alpha + back.green * (1 - front.alpha),
    blue: front.blue * front.alpha + back.blue * (1 - front.alpha),
    alpha: 1,
  });
  const background = (part) => {
    const layers = [];
    for (let at = part; at; at = at.parentElement) {
      const color = parsed(getComputedStyle(at).backgroundColor);
      if (color.alpha > 0) layers.push(color);
      if (color.alpha === 1) break;
    }
    return layers.reduceRight((back, front) => over(front, back), { red: 255, green: 255, blue: 255, alpha: 1 });
  };
  const light = ({ red, green, blue }) => {
    const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.querySelector('.md-content'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const part = walker.currentNode.parentElement;
    const style = getComputedStyle(part);
    const isShown = walker.currentNode.data.trim() && part.getClientRects().length > 0 && style.visibility === 'visible';
    if (!isShown || Number(style.opacity) < 1 || part.closest('.headerlink, .md-clipboard, style, script, svg')) continue;
    const back = background(part);
    const front = over(parsed(style.color), back);
    const [one, other] = [light(front), light(back)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const name = `${part.tagName.toLowerCase()}.${part.className} ${style.color}`;
    if (ratio < least && !seen.has(name)) {
      seen.add(name);
      found.push(`contrast ${ratio.toFixed(2)}: ${name}: ${walker.currentNode.data.trim().slice(0, 40)}`);
    }
  }
  return found;
}

const server = createServer((request, response) => {
  const path = join(folder, decodeURIComponent(new URL(request.url, 'http://site').pathname));
  const file = path.endsWith('/') ? join(path, 'index.html') : path;
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream' });
  createReadStream(file).pipe(response);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const site = `http://127.0.0.1:${server.address().port}/`;

const profile = mkdtempSync(join(tmpdir(), 'look-'));
const options = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-port=0'];
const browser = spawn('chromium', [...options, `--user-data-dir=${profile}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] });
const endpoint = await new Promise((resolve, reject) => {
  let said = '';
  browser.on('error', () => reject(new Error('chromium is not in the PATH')));
  browser.on('exit', () => reject(new Error(`chromium has ended: ${said}`)));
  browser.stderr.on('data', (data) => {
    said += data;
    const found = said.match(/ws:\/\/\S+/);
    if (found) resolve(found[0]);
  });
});
const { WebSocket } = await import('ws');
const socket = new WebSocket(endpoint, { perMessageDeflate: false });
await new Promise((resolve) => socket.once('open', resolve));
let last = 0;
const waiting = new Map();
const listeners = new Set();
socket.on('message', (text) => {
  const message = JSON.parse(text);
  if (message.id) waiting.get(message.id)?.(message);
  for (const listener of listeners) listener(message);
});
/** A command of the browser's protocol, and its answer. */
function command(method, parameters = {}, session = undefined) {
  last += 1;
  const id = last;
  socket.send(JSON.stringify({ id, method, params: parameters, sessionId: session }));
  return new Promise((resolve, reject) => {
    waiting.set(id, (message) => {
      waiting.delete(id);
      if (message.error) reject(new Error(`${method}: ${message.error.message}`));
      else resolve(message.result);
    });
  });
}
function loaded(session) {
  return new Promise((resolve) => {
    const listener = (message) => {
      if (message.sessionId === session && message.method === 'Page.loadEventFired') {
        listeners.delete(listener);
        resolve();
      }
    };
    listeners.add(listener);
  });
}

const pages = readdirSync(folder, { recursive: true })
  .filter((name) => name.endsWith('index.html') && !name.startsWith('rust-api'))
  .map((name) => relative('.', name).replace(/index\.html$/, ''))
  .filter((name) => words.length === 0 || words.some((word) => name.includes(word)))
  .sort();
const { targetId } = await command('Target.createTarget', { url: 'about:blank' });
const { sessionId: session } = await command('Target.attachToTarget', { targetId, flatten: true });
await command('Page.enable', {}, session);
let count = 0;
for (const page of pages) {
  const went = loaded(session);
  await command('Page.navigate', { url: site + page }, session);
  await went;
  // Colours that change over some time would be read on their way.
  const still = "document.head.append(Object.assign(document.createElement('style'), { textContent: '* { transition: none !important }' }))";
  await command('Runtime.evaluate', { expression: still }, session);
  for (const width of WIDTHS) {
    const metrics = { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 };
    await command('Emulation.setDeviceMetricsOverride', metrics, session);
    for (const scheme of SCHEMES) {
      const look = `document.body.setAttribute('data-md-color-scheme', '${scheme}'); (${faults})()`;
      const { result, exceptionDetails } = await command('Runtime.evaluate', { expression: look, returnByValue: true }, session);
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      for (const fault of result.value) {
        count += 1;
        console.log(`${page || 'home'} at ${width}, ${scheme === 'slate' ? 'dark' : 'light'}: ${fault}`);
      }
    }
  }
}
console.log(`${pages.length} pages looked at, ${count} faults`);
const ended = new Promise((resolve) => browser.once('exit', resolve));
await command('Browser.close');
await ended;
rmSync(profile, { recursive: true, force: true });
server.close();
process.exitCode = count || pages.length === 0 ? 1 : 0;
