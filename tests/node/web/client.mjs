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

/** Sends a request, and returns the response before its body is read. */
export async function open(url, { method = 'GET', headers = {}, agent } = {}) {
  const sent = request(url, { method, headers, agent });
  sent.end();
  const [answer] = await once(sent, 'response');
  return answer;
}

/** Sends a request that will be aborted. */
export function send(url) {
  const sent = request(url);
  sent.on('error', () => {});
  sent.end();
  return sent;
}

/** Lets everything that has begun in this process go on, as far as it can without waiting for time or for a client. */
export async function settled() {
  for (let turns = 0; turns < 20; turns++) await new Promise((resolve) => setImmediate(resolve));
}

/** Waits until a condition is true. On a timeout the error names the condition. */
export async function until(what, condition) {
  const deadline = Date.now() + 20_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`timed out: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
