// The playground: each element `.playground` of a page becomes a form whose answers are the output of the command. `data-first`,
// `data-second` and `data-pattern` are what it begins with. With `data-small` it has one policy, no traffic to draw, and leaves the
// address alone; the link within it leads to the large one, with what was typed.

import { command, PATIENCE } from './command-worker.mjs';
import { element } from './elements.mjs';
import { BARS, DRAWN, TrafficBars, trace } from './traffic-bars.mjs';

const PATTERNS = {
  steady: 'steady',
  bursts: 'bursts of each key',
  boundary: 'attack on the edge of a window',
  'retry-storm': 'callers that retry',
  outgoing: 'a backlog that goes out',
  daily: 'the curve of a day',
  drawn: 'drawn by hand',
};
const FORMS = { '': 'notation', file: 'policy file (YAML)' };
const POLICIES = ['first', 'second'];
/** The options of a pattern, and the numbers of drawn traffic. */
const OPTIONS = ['rate', 'duration', 'keys'];
const NUMBERS = ['seconds', 'most'];
/** So that an answer takes a moment: one key, and not many calls. */
const USUAL = { keys: '1' };
const CALLS = '10000';
const FILE = 'tidegate.yaml';
const TRACE = 'drawn.csv';
const PLOT = 'plot.svg';

/** A state as the address holds it: what counts, where it is not empty. */
function address(state) {
  const isDrawn = state.pattern === 'drawn';
  const names = [...POLICIES, 'form', 'pattern', ...(isDrawn ? NUMBERS : OPTIONS)];
  const entries = names.map((name) => [name, state[name]]).filter(([, value]) => value);
  return new URLSearchParams(isDrawn ? [...entries, ['bars', state.bars.join('.')]] : entries).toString();
}

/** The state that an address holds, else the usual one. */
function stateOf(hash, usual) {
  const found = new URLSearchParams(hash.slice(1));
  if (!POLICIES.some((name) => found.has(name))) return { ...usual, bars: [...usual.bars] };
  const bars = found.get('bars')?.split('.').map(Number) ?? usual.bars;
  const state = { ...usual, first: '', second: '', ...Object.fromEntries(found) };
  return { ...state, bars: Array.from({ length: BARS }, (_, index) => Math.max(0, Math.round(bars[index]) || 0)) };
}

/** A word as a shell reads it. */
function quoted(word) {
  return /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** What the command is asked: of each policy what lint and explain say, then for the picture; and that as a line for a shell. */
function questions(state) {
  const isFile = state.form === 'file';
  // A file has all policies in the first field.
  const names = isFile ? ['first'] : POLICIES.filter((name) => state[name].trim());
  const texts = isFile ? [FILE] : names.map((name) => state[name]);
  const files = isFile ? { [FILE]: state.first } : {};
  const chosen = (...policies) => (isFile ? ['--policies', FILE] : ['--', ...policies]);
  const options = OPTIONS.map((name) => [`--${name}`, state[name].trim() || USUAL[name]]).filter(([, value]) => value);
  const isDrawn = state.pattern === 'drawn';
  const pattern = ['--pattern', state.pattern, '--calls', CALLS, ...options.flat()];
  const traffic = isDrawn ? ['--trace', TRACE] : pattern;
  const theme = document.body.dataset.mdColorScheme === 'slate' ? 'dark' : 'light';
  const simulate = ['simulate', ...traffic, '--out', PLOT, '--theme', theme, ...chosen(...texts)];
  return {
    names,
    runs: [
      ...texts.map((text) => ({ words: ['lint', '--json', '--', text], files })),
      ...texts.map((text) => ({ words: ['explain', ...chosen(text)], files })),
      { words: simulate, files: isDrawn ? { ...files, [TRACE]: trace(state) } : files },
    ],
    shell: ['tidegate', 'simulate', ...(isFile ? chosen() : texts), ...traffic].map(quoted).join(' '),
  };
}

/** The message of a failed run, without the name of the command before it and the code behind it. */
function message({ error }) {
  return error.replace(/^tidegate: |\s*\[\w+]\s*$/g, '');
}

/** What lint has found in a text, each with the line and a caret below the column. */
function findings(text, lint, explained, isFile) {
  const { error, warnings } = JSON.parse(lint.out).files[0];
  const placed = ({ line, column, policy, message: said }) => {
    const about = `line ${line}, column ${column}: ${isFile && policy ? `${policy}: ` : ''}${said}`;
    // Of a notation the message shows it already.
    return said.includes('^') ? about : `${about}\n  ${text.split('\n')[line - 1]}\n  ${' '.repeat(column - 1)}^`;
  };
  // What is neither a notation nor a file is explained better by explain, which takes no files.
  if (error) return error.line ? placed(error) : message(explained);
  return warnings.map(placed).join('\n\n');
}

class Playground {
  constructor(root) {
    this.root = root;
    this.isSmall = 'small' in root.dataset;
    const { first = '', second = '', pattern = 'steady' } = root.dataset;
    const options = { rate: '', duration: '', keys: '', seconds: '60', most: '10', bars: DRAWN };
    this.usual = { first, second, form: '', pattern, ...options };
    this.state = stateOf(this.isSmall ? '' : location.hash, this.usual);
    this.link = root.querySelector('a');
    this.fields = this.makeFields();
    this.parts = this.makeParts();
    this.bars = new TrafficBars(
      () => this.state,
      () => this.changed(),
    );
    root.replaceChildren(...this.arranged());
    for (const [name, field] of Object.entries(this.fields))
      field.addEventListener('input', () => this.typed(name, field.value));
    if (!this.isSmall) addEventListener('hashchange', () => this.follow());
    new MutationObserver(() => this.answer()).observe(document.body, { attributeFilter: ['data-md-color-scheme'] });
    this.fill();
    if (this.link) this.link.hash = address(this.state);
    this.answer();
  }

  makeFields() {
    const { drawn, ...patterns } = PATTERNS;
    const plain = { spellcheck: false, autocapitalize: 'off', autocomplete: 'off' };
    const text = () => element('textarea', { rows: 2, ...plain });
    const word = (placeholder) => element('input', { type: 'text', placeholder, size: 8, ...plain });
    const number = (max) => element('input', { type: 'number', min: 1, max });
    const option = ([value, name]) => element('option', { value }, name);
    const choice = (options) => element('select', {}, ...Object.entries(options).map(option));
    return {
      first: text(),
      second: text(),
      form: choice(FORMS),
      pattern: choice(this.isSmall ? patterns : PATTERNS),
      rate: word('as 20/s'),
      duration: word('as 90s'),
      keys: word(USUAL.keys),
      seconds: number(86_400),
      most: number(200),
    };
  }

  makeParts() {
    const box = (label) => {
      const pre = element('pre', { tabIndex: 0 });
      pre.setAttribute('aria-label', label);
      return pre;
    };
    const copy = element('button', { type: 'button', className: 'md-button' }, 'Copy the link');
    copy.addEventListener('click', async () => {
      await navigator.clipboard.writeText(location.href);
      copy.textContent = 'Copied';
      setTimeout(() => copy.replaceChildren('Copy the link'), 2000);
    });
    return {
      found: POLICIES.map(() => element('pre', { className: 'playground-findings', role: 'status' })),
      explained: POLICIES.map(() => box('What explain says')),
      title: element('figcaption', { role: 'status' }),
      // With the image, when there is one.
      picture: element('div', { className: 'picture' }),
      numbers: box('What simulate says'),
      shell: element('code'),
      copy,
    };
  }

  /** The elements in their order. */
  arranged() {
    const { found, explained, title, picture, numbers, shell, copy } = this.parts;
    const labels = {
      first: 'Policy',
      second: 'Second policy',
      form: 'Written as',
      pattern: 'Traffic',
      rate: 'Rate',
      duration: 'Duration',
      keys: 'Keys',
      seconds: 'Seconds',
      most: 'Calls at most',
    };
    Playground.count = (Playground.count ?? 0) + 1;
    const labelled = (name) => {
      const field = this.fields[name];
      field.id = `playground-${Playground.count}-${name}`;
      return element(
        'div',
        { className: 'playground-field' },
        element('label', { htmlFor: field.id }, labels[name]),
        field,
      );
    };
    const policies = POLICIES.map((name, index) => {
      found[index].id = `playground-${Playground.count}-found-${name}`;
      this.fields[name].setAttribute('aria-describedby', found[index].id);
      return element('div', {}, labelled(name), found[index]);
    });
    this.figure = element('figure', {}, title, picture);
    const columns = (children) => element('div', { className: 'playground-columns' }, ...children);
    const row = (names) => element('div', { className: 'playground-row' }, ...names.map(labelled));
    const end = element('p', { className: 'playground-row' }, shell, copy);
    if (this.isSmall) return [policies[0], row(['pattern']), this.figure, explained[0], this.link];
    const traffic = row(['form', 'pattern', ...OPTIONS, ...NUMBERS]);
    return [columns(policies), traffic, this.bars.group, this.figure, columns(explained), numbers, end];
  }

  /** Shows the state in the fields, and those that count. */
  fill() {
    for (const [name, field] of Object.entries(this.fields))
      if (field.value !== this.state[name]) field.value = this.state[name];
    const isDrawn = this.state.pattern === 'drawn';
    const isFile = this.state.form === 'file';
    const hide = (name, isHidden) => {
      const part = this.fields[name].closest('.playground-field');
      if (part) part.hidden = isHidden;
    };
    hide('second', isFile);
    for (const name of OPTIONS) hide(name, isDrawn);
    for (const name of NUMBERS) hide(name, !isDrawn);
    this.fields.first.rows = isFile ? 8 : 2;
    this.bars.group.hidden = !isDrawn;
    this.bars.show();
  }

  typed(name, value) {
    this.state[name] = value;
    // Notations become a file, so that what was typed is not lost.
    if (name === 'form' && value === 'file' && !this.state.first.includes('policies:')) {
      const texts = POLICIES.map((policy) => this.state[policy].trim()).filter((text) => text);
      this.state.first = ['policies:', ...texts.map((text, index) => `  policy-${index + 1}: ${text}`), ''].join('\n');
    }
    this.fill();
    this.changed();
  }

  changed() {
    const hash = address(this.state);
    if (this.link) this.link.hash = hash;
    if (!this.isSmall) history.replaceState(history.state, '', `#${hash}`);
    this.answer();
  }

  /** Takes the state of the address, which a link on the page or a person has changed. */
  follow() {
    this.state = stateOf(location.hash, this.usual);
    this.fill();
    this.answer();
  }

  async answer() {
    const { names, runs, shell } = questions(this.state);
    this.parts.shell.textContent = shell;
    if (names.length === 0) return;
    const began = performance.now();
    const asked = address(this.state);
    const results = await this.ask(runs);
    if (!results) return;
    const isFile = this.state.form === 'file';
    const lints = results.slice(0, names.length);
    const explanations = results.slice(names.length, -1);
    for (const [index, name] of POLICIES.entries()) {
      const at = names.indexOf(name);
      this.fields[name].setAttribute('aria-invalid', lints[at]?.code === 2);
      const found = at < 0 ? '' : findings(this.state[name], lints[at], explanations[at], isFile);
      this.parts.found[index].textContent = found;
      this.parts.explained[index].textContent = at < 0 ? '' : explanations[at].out;
    }
    this.draw(
      results.at(-1),
      lints.some((lint) => lint.code === 2),
    );
    // For tests: what was answered, and how fast.
    this.root.dataset.milliseconds = Math.round(performance.now() - began);
    this.root.dataset.answered = asked;
  }

  /** The results of runs, of the newest question. */
  async ask(runs) {
    const { title } = this.parts;
    try {
      const results = await (await command()).ask(runs);
      if (results !== 'late') return results;
      title.textContent = `No answer within ${PATIENCE / 1000} s: shorten the traffic, or run the command in a shell.`;
    } catch (error) {
      title.textContent = `The command could not be loaded: ${error.message}`;
    }
    this.figure.classList.add('is-stale');
    return null;
  }

  draw(simulated, isInvalid) {
    const { title, picture, numbers } = this.parts;
    const hasFailed = simulated.code !== 0;
    this.figure.classList.toggle('is-stale', hasFailed);
    if (hasFailed) {
      title.textContent = isInvalid ? 'The picture is that of the last valid policies.' : message(simulated);
      return;
    }
    const [said] = simulated.out.split('\n');
    title.textContent = said;
    const alt = `${said}: what was asked, and what each policy admitted`;
    picture.replaceChildren(
      element('img', { alt, src: `data:image/svg+xml,${encodeURIComponent(simulated.files[PLOT])}` }),
    );
    numbers.textContent = simulated.out.replace(/\n*written: .*\n*$/, '\n');
  }
}

// The command is downloaded when a playground is seen.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    new Playground(target);
  }
});
for (const root of document.querySelectorAll('.playground')) seen.observe(root);
