// Runs the command `tidegate`, compiled to WebAssembly for WASI, with files in memory: arguments and texts in, texts out. Of WASI it
// has what the command calls; nothing reaches the page, its storage or the network. A run has memory of its own, so that one that
// failed leaves nothing behind.
//
// As a worker it waits for a module, then for runs, and answers with what they leave.

const SUCCESS = 0;
const BAD_DESCRIPTOR = 8;
const EXISTS = 20;
const NO_ENTRY = 44;
const NOT_SUPPORTED = 52;
const FOLDER = 3;
const REGULAR_FILE = 4;
const CHARACTER_DEVICE = 2;
/// The descriptor of the folder with all files; files have the numbers after it.
const ROOT = 3;
const CREATE = 1;
const EXCLUSIVE = 4;
const TRUNCATE = 8;

class Exit extends Error {
  constructor(code) {
    super(`exit ${code}`);
    this.code = code;
  }
}

/** The bytes of a file, which grow when it is written. */
class Bytes {
  constructor(bytes = new Uint8Array()) {
    this.bytes = bytes;
    this.length = bytes.length;
  }

  write(at, part) {
    const end = at + part.length;
    if (end > this.bytes.length) {
      const larger = new Uint8Array(Math.max(end, 2 * this.bytes.length));
      larger.set(this.bytes);
      this.bytes = larger;
    }
    this.bytes.set(part, at);
    this.length = Math.max(this.length, end);
  }

  text() {
    return new TextDecoder().decode(this.bytes.subarray(0, this.length));
  }
}

/** The functions of WASI for one run. */
function functions(command, memory, files) {
  const encoder = new TextEncoder();
  const open = [0, 1, 2].map((type) => ({ file: command.streams[type], at: 0 }));
  open.push({ isRoot: true });
  const view = () => new DataView(memory().buffer);
  const bytes = (at, length) => new Uint8Array(memory().buffer, at, length);
  const path = (at, length) => new TextDecoder().decode(bytes(at, length)).replace(/^(\.?\/)+/, '');
  const texts = command.arguments.map((text) => encoder.encode(`${text}\0`));

  /** Calls with each of the parts of memory that a read or a write names, until one is not filled. */
  function each(list, count, move) {
    let moved = 0;
    for (let index = 0; index < count; index += 1) {
      const at = list + 8 * index;
      const part = bytes(view().getUint32(at, true), view().getUint32(at + 4, true));
      const done = move(part);
      moved += done;
      if (done < part.length) break;
    }
    return moved;
  }

  function status(type, size, at) {
    bytes(at, 64).fill(0);
    view().setUint8(at + 16, type);
    view().setBigUint64(at + 32, BigInt(size), true);
    return SUCCESS;
  }

  return {
    args_sizes_get(count, size) {
      view().setUint32(count, texts.length, true);
      view().setUint32(
        size,
        texts.reduce((sum, text) => sum + text.length, 0),
        true,
      );
      return SUCCESS;
    },
    args_get(pointers, at) {
      for (const [index, text] of texts.entries()) {
        view().setUint32(pointers + 4 * index, at, true);
        bytes(at, text.length).set(text);
        at += text.length;
      }
      return SUCCESS;
    },
    environ_sizes_get(count, size) {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return SUCCESS;
    },
    environ_get: () => SUCCESS,
    clock_time_get(id, _precision, at) {
      const milliseconds = id === 0 ? Date.now() : performance.now();
      view().setBigUint64(at, BigInt(Math.round(milliseconds * 1e6)), true);
      return SUCCESS;
    },
    random_get(at, length) {
      crypto.getRandomValues(bytes(at, length));
      return SUCCESS;
    },
    fd_prestat_get(descriptor, at) {
      if (descriptor !== ROOT) return BAD_DESCRIPTOR;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return SUCCESS;
    },
    fd_prestat_dir_name(_descriptor, at) {
      bytes(at, 1).set(encoder.encode('/'));
      return SUCCESS;
    },
    fd_fdstat_get(descriptor, at) {
      if (!open[descriptor]) return BAD_DESCRIPTOR;
      bytes(at, 24).fill(0);
      view().setUint8(at, descriptor < ROOT ? CHARACTER_DEVICE : open[descriptor].isRoot ? FOLDER : REGULAR_FILE);
      // Every right, but that streams cannot be sought: a character device that cannot is a terminal to isatty.
      const all = 0x1fffffffn;
      view().setBigUint64(at + 8, all, true);
      view().setBigUint64(at + 16, all, true);
      return SUCCESS;
    },
    fd_filestat_get(descriptor, at) {
      const { file, isRoot } = open[descriptor] ?? {};
      return status(isRoot ? FOLDER : REGULAR_FILE, file?.length ?? 0, at);
    },
    path_filestat_get(_descriptor, _flags, name, length, at) {
      const found = path(name, length);
      if (found === '') return status(FOLDER, 0, at);
      return files.has(found) ? status(REGULAR_FILE, files.get(found).length, at) : NO_ENTRY;
    },
    path_open(_folder, _lookup, name, length, how, _rights, _inherited, _flags, at) {
      const found = path(name, length);
      if (found === '') {
        open.push({ isRoot: true });
      } else {
        if (!files.has(found) && !(how & CREATE)) return NO_ENTRY;
        if (files.has(found) && how & EXCLUSIVE) return EXISTS;
        if (!files.has(found) || how & TRUNCATE) files.set(found, new Bytes());
        open.push({ file: files.get(found), at: 0 });
      }
      view().setUint32(at, open.length - 1, true);
      return SUCCESS;
    },
    fd_read(descriptor, list, count, at) {
      const from = open[descriptor];
      if (!from?.file) return BAD_DESCRIPTOR;
      const moved = each(list, count, (part) => {
        const read = from.file.bytes.subarray(from.at, Math.min(from.at + part.length, from.file.length));
        part.set(read);
        from.at += read.length;
        return read.length;
      });
      view().setUint32(at, moved, true);
      return SUCCESS;
    },
    fd_write(descriptor, list, count, at) {
      const to = open[descriptor];
      if (!to?.file) return BAD_DESCRIPTOR;
      const moved = each(list, count, (part) => {
        to.file.write(to.at, part);
        to.at += part.length;
        return part.length;
      });
      view().setUint32(at, moved, true);
      return SUCCESS;
    },
    fd_seek(descriptor, offset, whence, at) {
      const moved = open[descriptor];
      if (!moved?.file) return BAD_DESCRIPTOR;
      moved.at = Number(offset) + [0, moved.at, moved.file.length][whence];
      view().setBigUint64(at, BigInt(moved.at), true);
      return SUCCESS;
    },
    fd_close(descriptor) {
      open[descriptor] = undefined;
      return SUCCESS;
    },
    proc_exit(code) {
      throw new Exit(code);
    },
  };
}

/**
 * Runs the command with these arguments, where there are these files: an object of texts by their names. Returns its exit code, what
 * it wrote to its two outputs, and the files as they are afterwards.
 */
export function run(module, words, texts = {}) {
  const encoder = new TextEncoder();
  const files = new Map(Object.entries(texts).map(([name, text]) => [name, new Bytes(encoder.encode(text))]));
  const streams = [new Bytes(), new Bytes(), new Bytes()];
  let instance;
  const known = functions({ arguments: ['tidegate', ...words], streams }, () => instance.exports.memory, files);
  const imports = {};
  for (const { module: space, name } of WebAssembly.Module.imports(module)) {
    imports[space] ??= {};
    imports[space][name] = known[name] ?? (() => NOT_SUPPORTED);
  }
  instance = new WebAssembly.Instance(module, imports);
  let code = 0;
  try {
    instance.exports._start();
  } catch (error) {
    // A trap is a panic, whose message stands in the output for errors.
    code = error instanceof Exit ? error.code : -1;
  }
  const [, out, error] = streams.map((stream) => stream.text());
  return { code, out, error, files: Object.fromEntries([...files].map(([name, file]) => [name, file.text()])) };
}

if (typeof WorkerGlobalScope !== 'undefined') {
  let module;
  self.onmessage = ({ data }) => {
    module = data.module ?? module;
    if (data.runs) self.postMessage(data.runs.map(({ words, files }) => run(module, words, files)));
  };
}
