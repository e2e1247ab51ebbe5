// Looks at each page of the built site in headless Chromium, 1280 and 390 pixels wide, light and dark: nothing is wider than the
// page, every image is there, and every text has enough contrast (4.5 to 1, large text 3 to 1).
//
//     node docs/site/look.mjs FOLDER [WORD OF A PAGE'S PATH …]
//
// It needs chromium in the PATH.

import { readdirSync } from 'node:fs';
import { relative } from 'node:path';
import { openBrowser } from './browser.mjs';

const [folder = '.cache/site', ...words] = process.argv.slice(2);
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

const { site, command, open, go, evaluate, close } = await openBrowser(folder);
const pages = readdirSync(folder, { recursive: true })
  .filter((name) => name.endsWith('index.html') && !name.startsWith('rust-api'))
  .map((name) => relative('.', name).replace(/index\.html$/, ''))
  .filter((name) => words.length === 0 || words.some((word) => name.includes(word)))
  .sort();
const session = await open();
let count = 0;
for (const page of pages) {
  await go(session, site + page);
  // Colours that change over some time would be read on their way.
  const still = "document.head.append(Object.assign(document.createElement('style'), { textContent: '* { transition: none !important }' }))";
  await evaluate(session, still);
  for (const width of WIDTHS) {
    const metrics = { width, height: 900, deviceScaleFactor: 1, mobile: width < 500 };
    await command('Emulation.setDeviceMetricsOverride', metrics, session);
    for (const scheme of SCHEMES) {
      const look = `document.body.setAttribute('data-md-color-scheme', '${scheme}'); (${faults})()`;
      for (const fault of await evaluate(session, look)) {
        count += 1;
        console.log(`${page || 'home'} at ${width}, ${scheme === 'slate' ? 'dark' : 'light'}: ${fault}`);
      }
    }
  }
}
console.log(`${pages.length} pages looked at, ${count} faults`);
await close();
process.exitCode = count || pages.length === 0 ? 1 : 0;
