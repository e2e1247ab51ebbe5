// Traffic that is drawn: bars, each with the calls of a part of the time. A pointer draws, and so do the arrow keys.

import { element } from './elements.mjs';

export const BARS = 40;
/** What there is to begin with: traffic that rises and falls, a little, and a burst. */
export const DRAWN = [0, 0, 1, 2, 3, 4, 6, 9, 10, 10, 9, 6, 4, 3, 2, 1, 0, 0, 0, 0].concat([
  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 10, 10, 10, 0, 0, 0, 0, 0,
]);

/** The length of a bar in seconds, and the most calls that it may have. */
function scale({ seconds, most }) {
  return { width: (Number(seconds) || 60) / BARS, most: Math.ceil(Number(most)) || 10 };
}

/** The calls of the bars, as a trace that the command reads. */
export function trace(state) {
  const { width, most } = scale(state);
  const lines = state.bars.flatMap((bar, index) => {
    const calls = Math.min(bar, most);
    return Array.from({ length: calls }, (_, call) => `${((index + call / calls) * width).toFixed(6)},caller`);
  });
  return ['time,key', ...lines, ''].join('\n');
}

/** The bars of a state, which `get` returns; `changed` is called when one is drawn. */
export class TrafficBars {
  constructor(get, changed) {
    this.get = get;
    this.changed = changed;
    this.bars = Array.from({ length: BARS }, () =>
      element('div', { role: 'slider', tabIndex: -1, 'aria-valuemin': 0 }),
    );
    this.bars[0].tabIndex = 0;
    this.group = element('div', { className: 'playground-bars', role: 'group' }, ...this.bars);
    this.group.setAttribute('aria-label', 'Calls over time');
    this.group.addEventListener('keydown', (event) => this.press(event));
    this.group.addEventListener('pointerdown', (event) => {
      this.group.setPointerCapture(event.pointerId);
      this.draw(event);
    });
    this.group.addEventListener('pointermove', (event) => event.buttons && this.draw(event));
  }

  show() {
    const { width, most } = scale(this.get());
    for (const [index, bar] of this.bars.entries()) {
      const calls = Math.min(this.get().bars[index], most);
      const from = `from ${Number((index * width).toFixed(2))} s`;
      bar.style.setProperty('--share', calls / most);
      bar.setAttribute('aria-label', `Calls ${from}`);
      bar.setAttribute('aria-valuemax', most);
      bar.setAttribute('aria-valuenow', calls);
      bar.setAttribute('aria-valuetext', `${calls} calls`);
    }
  }

  set(index, calls) {
    const { most } = scale(this.get());
    this.get().bars[index] = Math.min(most, Math.max(0, Math.round(calls)));
    this.show();
    this.changed();
  }

  press(event) {
    const index = this.bars.indexOf(event.target);
    const { most } = scale(this.get());
    const calls = Math.min(this.get().bars[index], most);
    const step = Math.ceil(most / 5);
    const values = {
      ArrowUp: calls + 1,
      ArrowDown: calls - 1,
      PageUp: calls + step,
      PageDown: calls - step,
      Home: 0,
      End: most,
    };
    const next = this.bars[index + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? NaN)];
    if (event.key in values) {
      this.set(index, values[event.key]);
    } else if (next) {
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else {
      return;
    }
    event.preventDefault();
  }

  draw({ clientX, clientY }) {
    const { left, top, width, height } = this.group.getBoundingClientRect();
    const index = Math.floor(((clientX - left) / width) * BARS);
    if (index in this.bars) this.set(index, (1 - (clientY - top) / height) * scale(this.get()).most);
  }
}
