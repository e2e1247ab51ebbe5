// Real servers for Node tests.
//
//     const servers = await Servers.start('single', { tls: true });
//     try { await servers.stop(0); } finally { await servers.close(); }

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('servers.py', import.meta.url));

/** A harness as a child process. Its servers live until `close`, or until this process ends in whatever way. */
export class Servers {
  #child;
  #lines;
  #queue = Promise.resolve();

  /** Starts servers of a kind: single, replica, sentinel, cluster or postgres. */
  static async start(kind = 'single', options = {}) {
    const servers = new Servers(JSON.stringify({ kind, options }));
    try {
      servers.json = await servers.#answer();
    } catch (error) {
      await servers.close();
      throw error;
    }
    return servers;
  }

  constructor(request) {
    this.#child = spawn('python3', [PROGRAM, request], { stdio: ['pipe', 'pipe', 'inherit'] });
    // When the harness has ended, the missing answer is reported, with a better message than the error of the write.
    this.#child.stdin.on('error', () => {});
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** The URL of the whole arrangement. */
  get url() {
    return this.json.url;
  }

  /** The URL of each endpoint by name: tcp, tls, unix, primary, replicas, … */
  get urls() {
    return this.json.urls;
  }

  /** The plain TCP port of one server. */
  port(server = 0) {
    return this.json.servers[server].port;
  }

  /** Kills a server. */
  async kill(server = 0) {
    await this.#run({ do: 'kill', server });
  }

  /** Stops a server (SIGSTOP): its connections stay open and silent. */
  async stop(server = 0) {
    await this.#run({ do: 'stop', server });
  }

  /** Continues a stopped server. */
  async cont(server = 0) {
    await this.#run({ do: 'cont', server });
  }

  /** Starts a killed server again: same port, no data. */
  async start(server = 0) {
    await this.#run({ do: 'start', server });
  }

  /** Kills a server and starts it again: same port, no data. */
  async restart(server = 0) {
    await this.#run({ do: 'restart', server });
  }

  /** Sets a server's wall clock ahead or back. The servers need the option `clock`. */
  async clock(seconds, server = 0) {
    await this.#run({ do: 'clock', server, seconds });
  }

  /** Runs a Redis command as the harness's own user, which exists beside all users of the test. */
  async command(words, server = 0) {
    return (await this.#run({ do: 'command', server, args: words.map(String) })).reply;
  }

  /** Ends the servers, and waits until their processes and files are gone. */
  async close() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.stdin.end();
    await ended;
  }

  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    await this.close();
  }

  // One command and its answer at a time, because answers have no identifiers, only their order.
  #run(command) {
    const answer = this.#queue.then(() => {
      this.#child.stdin.write(`${JSON.stringify(command)}\n`);
      return this.#answer();
    });
    this.#queue = answer.catch(() => {});
    return answer;
  }

  async #answer() {
    const { done, value } = await this.#lines.next();
    if (done) throw new Error('the server harness ended unexpectedly; its message is on stderr');
    const answer = JSON.parse(value);
    if (!answer.ok) throw new Error(answer.error);
    return answer;
  }
}
