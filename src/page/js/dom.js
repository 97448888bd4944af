// Small helpers: elements, numbers as people read them, the tip under the pointer, tables behind charts.

const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'style') node.style.cssText = value;
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

const svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

const KIB = 1024, MIB = 1024 * KIB, GIB = 1024 * MIB;
const UNITS = [[1024 * GIB, 'TiB'], [GIB, 'GiB'], [MIB, 'MiB'], [KIB, 'KiB']];
const size = (bytes) => {
  const least = (unit) => (unit === KIB ? unit : unit - unit / 204800); // it is rounded up to this unit from here on
  const [unit, name] = UNITS.find(([unit]) => bytes >= least(unit)) || [1, 'B'];
  return `${bytes % unit ? (bytes / unit).toFixed(2) : bytes / unit} ${name}`;
};
const grouped = (count) => Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, ',');
const percent = (part, whole) => `${whole ? (100 * part / whole).toFixed(1) : '0.0'} %`;
const digits = (value) => value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
const nanos = (ns) => {
  if (ns < 999.5) return `${digits(ns)} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The tip, kept within the window.
const tip = document.getElementById('tip');
const showTip = (content, x, y) => {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const right = document.documentElement.clientWidth - width - 8;
  const left = x + 16 > right ? x - width - 16 : x + 16;
  const above = y - height - 14 < 4;
  tip.style.left = `${scrollX + Math.max(8, Math.min(left, right))}px`;
  tip.style.top = `${scrollY + (above ? y + 18 : y - height - 14)}px`;
};
const hideTip = () => { tip.hidden = true; };

const tipTable = (rows) => el('table', {}, ...rows.map(([name, value, variable]) => el('tr', {},
  el('th', variable ? { class: 'swatch', style: `--swatch:var(${variable})` } : {}, name), el('td', {}, value))));

// A table behind a chart, made when somebody looks.
const numbersBehind = (root, words, make) => {
  const box = el('details', {}, el('summary', {}, words));
  box.addEventListener('toggle', () => {
    if (box.open && box.children.length === 1) {
      const { heading, rows } = make();
      const head = el('tr', {}, ...heading.map((text) => el('th', { scope: 'col' }, text)));
      const line = (row) => el('tr', {}, el('th', { scope: 'row' }, row[0]),
        ...row.slice(1).map((text) => el('td', {}, text)));
      box.append(el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': words },
        el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows.map(line)))));
    }
  });
  root.append(box);
};

// A canvas as sharp as the screen is; returns its context, scaled to CSS pixels.
const prepare = (canvas, width, height) => {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return context;
};

// Steps of 1, 2 or 5 times a power of ten, at most so many.
const ticks = (from, to, most) => {
  const raw = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) || power;
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) all.push(at);
  return { all, step };
};

// Moves labels apart, as little as needed.
const spread = (places, gap, low, high) => {
  const order = places.map((_, n) => n).sort((a, b) => places[a] - places[b]);
  const moved = places.slice();
  let floor = low;
  for (const n of order) { moved[n] = Math.max(moved[n], floor); floor = moved[n] + gap; }
  let ceiling = high;
  for (const n of order.reverse()) { moved[n] = Math.min(moved[n], ceiling); ceiling = moved[n] - gap; }
  return moved;
};

// Draws again whenever the room or the colours change.
const redrawWith = (node, draw) => {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now > 0 && now !== width) { width = now; draw(); }
  }).observe(node);
  for (const media of ['(prefers-color-scheme: dark)', 'print']) matchMedia(media).addEventListener('change', draw);
};

// A group of buttons of which one is chosen; arrow keys go from one to the next.
const choices = (names, label, choose, first = 0) => {
  const buttons = names.map(({ name, variable }, n) => el('button', {
    type: 'button', role: 'radio', 'aria-checked': String(n === first), tabindex: n === first ? '0' : '-1',
    style: variable ? `--run:var(${variable})` : '', onclick: () => pick(n),
  }, ...(variable ? [el('span', { class: 'key' })] : []), name));
  const pick = (chosen) => {
    buttons.forEach((button, n) => {
      button.setAttribute('aria-checked', String(n === chosen));
      button.tabIndex = n === chosen ? 0 : -1;
    });
    choose(chosen);
  };
  const group = el('div', { class: 'legend', role: 'radiogroup', 'aria-label': label }, ...buttons);
  group.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = (at + step + buttons.length) % buttons.length;
    pick(next);
    buttons[next].focus();
  });
  return group;
};

// Draws a chart in its place. One that fails says so there, and does not take the others with it.
const hang = (article, draw) => {
  const root = article.querySelector('.chart');
  try {
    draw(root);
    article.dataset.state = 'drawn';
  } catch (error) {
    article.dataset.state = 'failed';
    root.append(el('p', { class: 'empty' }, `This chart cannot be drawn: ${error.message}`));
    console.error(error);
  }
};
