// The command in a worker, so that the page does not wait for it.

/** How long an answer may take before the worker is ended, in milliseconds. */
export const PATIENCE = 5000;

/** Answers one question at a time; of those that wait only the newest is asked. */
class CommandWorker {
  constructor(module, source) {
    this.module = module;
    // From memory, so that a worker that was ended can be replaced without a network.
    this.source = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  }

  /** What runs of the command leave: see `run` in command.mjs. `'late'` when it took too long, `null` when a newer question came. */
  async ask(runs) {
    this.newest = runs;
    while (this.busy) await this.busy;
    if (this.newest !== runs) return null;
    this.busy = this.answer(runs);
    const results = await this.busy;
    this.busy = undefined;
    return results;
  }

  answer(runs) {
    if (!this.worker) {
      this.worker = new Worker(this.source, { type: 'module' });
      this.worker.postMessage({ module: this.module });
    }
    return new Promise((resolve) => {
      const late = setTimeout(() => {
        this.worker.terminate();
        this.worker = undefined;
        resolve('late');
      }, PATIENCE);
      this.worker.onmessage = ({ data }) => {
        clearTimeout(late);
        resolve(data);
      };
      this.worker.postMessage({ runs });
    });
  }
}

async function load() {
  const get = async (name) => {
    const response = await fetch(new URL(name, import.meta.url));
    if (!response.ok) throw new Error(`${name}: ${response.status}`);
    return response;
  };
  const files = [get('tidegate.wasm.zst'), get('command.mjs'), import('./fzstd.mjs')];
  const [packed, source, { decompress }] = await Promise.all(files);
  const bytes = decompress(new Uint8Array(await packed.arrayBuffer()));
  return new CommandWorker(await WebAssembly.compile(bytes), await source.text());
}

let loading;
/** The command, which is downloaded once, when it is asked first. */
export function command() {
  loading ??= load();
  return loading;
}
