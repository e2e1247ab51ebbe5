import { once } from 'node:events';
import { request } from 'node:http';

/** Sends a request and reads the answer to its end. */
export async function get(url, { method = 'GET', headers = {}, agent } = {}) {
  const answer = await open(url, { method, headers, agent });
  let body = '';
  answer.setEncoding('utf8');
  for await (const chunk of answer) body += chunk;
  return { status: answer.statusCode, headers: answer.headers, body };
}

/** Sends a request and gives back the answer, of which nothing is read yet. */
export async function open(url, { method = 'GET', headers = {}, agent } = {}) {
  const sent = request(url, { method, headers, agent });
  sent.end();
  const [answer] = await once(sent, 'response');
  return answer;
}

/** A request that is given up before it is answered. */
export function send(url) {
  const sent = request(url);
  sent.on('error', () => {});
  sent.end();
  return sent;
}

/** Waits until it is so. A test that hangs here says what it waits for. */
export async function until(what, isSo) {
  const patience = Date.now() + 20_000;
  while (!(await isSo())) {
    if (Date.now() > patience) throw new Error(`it never came that ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
