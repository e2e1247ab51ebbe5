// A site on a free port, and headless Chromium that looks at it. Node drives it over its own protocol, so nothing has to be
// installed beside it.

import { spawn } from 'node:child_process';
import { createReadStream, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, extname, join } from 'node:path';

const TYPES = {
  '.html': 'text/html',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
};
const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

/** Chromium in the PATH; undefined where there is none. */
export function chromium() {
  const folders = (process.env.PATH ?? '').split(delimiter);
  return NAMES.flatMap((name) => folders.map((folder) => join(folder, name))).find((path) => existsSync(path));
}

/** Serves a folder, and opens a page of Chromium. */
export async function openBrowser(folder) {
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
  const browser = spawn(chromium() ?? 'chromium', [...options, `--user-data-dir=${profile}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] });
  // Also when a test fails on its way.
  process.on('exit', () => browser.kill());
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
  async function open() {
    const { targetId } = await command('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await command('Target.attachToTarget', { targetId, flatten: true });
    await command('Page.enable', {}, sessionId);
    return sessionId;
  }
  /** Goes to an address, and waits until it is loaded. */
  async function go(session, url) {
    const went = loaded(session);
    await command('Page.navigate', { url }, session);
    await went;
  }
  /** The value of an expression in the page, which may be a promise. */
  async function evaluate(session, expression) {
    const parameters = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await command('Runtime.evaluate', parameters, session);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }
  async function close() {
    const ended = new Promise((resolve) => browser.once('exit', resolve));
    await command('Browser.close');
    await ended;
    rmSync(profile, { recursive: true, force: true });
    server.close();
  }
  return { site, server, command, open, go, evaluate, close };
}
