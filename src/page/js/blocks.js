// Blocks one by one: those that match a filter, as a list, and the one that was chosen, with its call stack.

const MOST_ROWS = 30;
const IN_UNITS = { b: 1, k: KIB, kb: KIB, kib: KIB, m: MIB, mb: MIB, mib: MIB, g: GIB, gb: GIB, gib: GIB };
const parseSize = (text) => {
  const found = /^\s*([\d.]+)\s*([a-z]*)\s*$/i.exec(text);
  const unit = found && (IN_UNITS[found[2].toLowerCase()] ?? (found[2] ? null : 1));
  return unit ? +found[1] * unit : null;
};

// The blocks that a filter lets through; null if it lets all.
const maskOf = (lives, { text, least, most, category }) => {
  if (!text && least === null && most === null && !category) return null;
  const wanted = text.toLowerCase();
  const inStack = lives.stacks.map(([frames]) => !wanted || frames.some((frame) => lives.frames[frame].toLowerCase().includes(wanted)));
  const byOrigin = lives.origins.map(([stack, of]) => inStack[stack] && (!category || lives.categories[of] === category));
  const bySize = Array.from(lives.bytes, (bytes) => bytes >= (least ?? 0) && bytes <= (most ?? Infinity));
  const mask = new Uint8Array(lives.count);
  for (let n = 0; n < lives.count; n++) mask[n] = byOrigin[lives.origin[n]] && bySize[lives.sizeOf[n]] ? 1 : 0;
  return mask;
};

const filterBox = (lives, session) => {
  const field = (label, attributes) => {
    const input = el('input', { type: 'text', ...attributes });
    return { input, node: el('label', {}, label, ' ', input) };
  };
  const text = field('Search call stacks', { type: 'search', placeholder: 'file, line or function' });
  const least = field('at least', { placeholder: '1MiB', size: '7' }), most = field('at most', { placeholder: '2GiB', size: '7' });
  const used = [...new Set(lives.origins.map(([, category]) => lives.categories[category]))];
  const select = el('select', {}, el('option', { value: '' }, 'any'), ...used.map((name) => el('option', { value: name }, name)));
  const found = el('output', { class: 'found' });
  let timer = null;
  const apply = () => {
    const sizes = [least, most].map(({ input }) => {
      const bytes = input.value ? parseSize(input.value) : null;
      input.setAttribute('aria-invalid', String(Boolean(input.value) && bytes === null));
      return bytes;
    });
    const mask = maskOf(lives, { text: text.input.value.trim(), least: sizes[0], most: sizes[1], category: select.value });
    session.change({ mask });
    const { peak } = session.grouping;
    const count = mask ? mask.reduce((sum, one) => sum + one, 0) : 0;
    found.textContent = mask ? `${grouped(count)} of ${grouped(lives.count)} blocks match${count ? `; at most ${size(peak.bytes)} of them are live, at event ${grouped(peak.event)}` : ''}` : '';
  };
  const soon = () => { clearTimeout(timer); timer = setTimeout(apply, 150); };
  [text, least, most].forEach(({ input }) => input.addEventListener('input', soon));
  select.addEventListener('change', apply);
  const clear = () => { for (const { input } of [text, least, most]) input.value = ''; select.value = ''; apply(); };
  const search = lives.has_stacks ? [text.node] : [];
  return el('div', { class: 'tools filter', role: 'group', 'aria-label': 'Filter' }, ...search, least.node, most.node,
    el('label', {}, 'category ', select), el('button', { type: 'button', onclick: clear }, 'Clear'), found);
};

// The block that was chosen: all that is known of it.
const chosenBlock = (lives, session) => {
  const n = session.selected;
  const rows = blockRows(lives, n).concat([['address', `0x${lives.places[lives.placeOf[n]].toString(16)}`]]);
  const list = el('dl', { class: 'rows' }, ...rows.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
  const button = (text, act) => el('button', { type: 'button', onclick: act }, text);
  const end = lives.died[n];
  const tools = el('div', { class: 'tools' }, button('Go to its request', () => session.go(lives.born[n])),
    ...(end === NEVER ? [] : [button('Go to its end', () => session.go(end))]), button('Close', () => session.change({ selected: null })));
  return el('div', { class: 'chosen', role: 'group', 'aria-label': 'The block that was chosen' },
    el('h3', {}, lineOf(lives, n)), list, stackLines(lives, n), tools);
};

const blockList = (lives, session) => {
  const chosen = el('div'), caption = el('p', { class: 'words' }), body = el('tbody');
  const head = el('tr', {}, ...['size', 'asked for by', 'category', 'from event', 'until'].map((name) => el('th', { scope: 'col' }, name)));
  const table = el('table', { class: 'blocks' }, el('thead', {}, head), body);
  const box = el('details', { open: '' }, el('summary', {}, 'The largest blocks at this event'), caption,
    el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'The largest blocks at this event' }, table));
  const row = (n) => {
    const pick = el('button', { type: 'button', class: 'plain', onclick: () => session.change({ selected: n }) }, size(sizeOfBlock(lives, n)));
    const end = lives.died[n] === NEVER ? 'the end' : grouped(lives.died[n]);
    return el('tr', n === session.selected ? { class: 'current' } : {}, el('th', { scope: 'row' }, pick),
      ...[lineOf(lives, n), categoryOf(lives, n), grouped(lives.born[n]), end].map((text) => el('td', {}, text)));
  };
  const show = (memory) => {
    const live = memory.blocks.map(({ block }) => block).filter((block) => block !== null && (!session.mask || session.mask[block]));
    live.sort((a, b) => sizeOfBlock(lives, b) - sizeOfBlock(lives, a));
    caption.textContent = live.length > MOST_ROWS ? `The ${MOST_ROWS} largest of ${grouped(live.length)}.` : live.length ? '' : 'None.';
    body.replaceChildren(...live.slice(0, MOST_ROWS).map(row));
    chosen.replaceChildren(...(session.selected === null ? [] : [chosenBlock(lives, session)]));
  };
  return { node: el('div', {}, chosen, box), show };
};
