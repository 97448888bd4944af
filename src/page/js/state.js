// The state: the memory itself at one event, as a ribbon, and the way from event to event.

const BANDS = Array.from({ length: MOST_GROUPS }, (_, n) => `--band-${n}`);
const STATE_COLOURS = [...BANDS, '--pending', '--free', '--dim'];
const [PENDING, FREE, DIM] = [MOST_GROUPS, MOST_GROUPS + 1, MOST_GROUPS + 2];

// The segments that are held after an event, with their blocks and the free memory between.
const stateAt = (lives, event) => {
  const held = lives.segments.filter(({ born, died }) => born <= event && died > event).sort((a, b) => a.at - b.at);
  const live = liveAt(lives, event), memory = { blocks: [], size: 0, segments: 0, free: 0, live: 0 };
  let next = 0;
  held.forEach((one, n) => {
    const before = held[n - 1], last = memory.blocks[memory.blocks.length - 1];
    // Mapped pieces of one expandable segment stand side by side.
    const joins = before && lives.allocator === 'expandable' && before.at + before.size === one.at
      && before.stream === one.stream && before.pool === one.pool;
    const segment = joins ? last.segment : { start: memory.size, size: 0, number: ++memory.segments, stream: one.stream, pool: one.pool, at: one.at };
    const push = (size, block) => {
      if (size <= 0) return;
      memory.blocks.push({ start: memory.size, size, segment, block });
      memory.size += size;
      segment.size += size;
      if (block === null) memory.free += size; else memory.live += size;
    };
    let at = one.at;
    const end = one.at + one.size;
    for (; next < live.length; next++) {
      const place = lives.places[lives.placeOf[live[next]]], bytes = sizeOfBlock(lives, live[next]);
      if (place >= end) break;
      push(Math.max(0, place - at), null);
      push(Math.min(end, place + bytes) - Math.max(at, place), live[next]);
      at = Math.min(end, place + bytes);
      if (place + bytes > end) break;
    }
    push(end - at, null);
  });
  return memory;
};

const stateChart = (root, lives, session) => {
  const words = el('p', { class: 'words', 'aria-live': 'polite' }), swatches = el('div', { class: 'swatches' });
  const where = el('input', { type: 'number', min: '0', max: String(Math.max(0, lives.events - 1)), 'aria-label': 'Event', class: 'event' });
  const button = (text, label, act) => el('button', { type: 'button', 'aria-label': label, onclick: act }, text);
  const growths = lives.held.at.filter((at, n) => n === 0 || lives.held.bytes[n] > lives.held.bytes[n - 1]);
  const growth = (step) => () => {
    const n = step > 0 ? upTo(growths, session.at) : upTo(growths, session.at - 1) - 1;
    if (growths[n] !== undefined) session.go(growths[n]);
  };
  const stepping = el('div', { class: 'tools stepping', role: 'group', 'aria-label': 'Go to an event' },
    button('◀', 'Previous event', () => session.go(session.at - 1)), where, button('▶', 'Next event', () => session.go(session.at + 1)),
    button('Peak', 'Go to the peak', () => session.go(session.grouping.peak.event)),
    button('◀ growth', 'Go to the growth before', growth(-1)), button('growth ▶', 'Go to the next growth', growth(1)),
    ...lives.ooms.slice(0, 1).map(([at]) => button('Out of memory', 'Go to out of memory', () => session.go(at))));
  where.addEventListener('change', () => session.go(+where.value));
  const filter = filterBox(lives, session);
  const most = Math.max(1, lives.held.most);

  const groupOf = (n) => session.grouping.group[n];
  const kindOf = ({ block }) => {
    if (block === null) return FREE;
    if (session.mask && !session.mask[block]) return DIM;
    if ((lives.letGo.get(block) ?? NEVER) <= session.at) return PENDING;
    return STATE_COLOURS.indexOf(session.grouping.groups[groupOf(block)].colour);
  };
  const tell = (one) => {
    const { segment, block } = one, of = `${segment.number} of ${memory.segments}, ${size(segment.size)}`;
    const rows = [['segment', of], ['address', `0x${(segment.at + one.start - segment.start).toString(16)}`]];
    if (block === null) return { name: 'free', colour: '--free', rows: [['size', size(one.size)], ...rows] };
    return { name: lineOf(lives, block), colour: STATE_COLOURS[kindOf(one)], rows: [...blockRows(lives, block), ...rows], more: [stackLines(lives, block, 6)] };
  };
  const picture = ribbon({
    perLine: (width) => most / linesFor(width), label: 'The memory at this event', colours: STATE_COLOURS, kindOf, tell,
    pick: ({ block }) => { if (block !== null) session.change({ selected: block }); },
    isChosen: ({ block }) => block !== null && block === session.selected,
  });
  const list = blockList(lives, session);
  root.append(stepping, filter, words, swatches, picture.surface,
    el('p', { class: 'hint' }, 'Hover to read a block, click to keep it. With the keyboard: arrows go from block to block, Enter keeps one; [ and ] go from event to event.'), list.node);
  root.addEventListener('keydown', (event) => {
    const step = { '[': -1, ']': 1 }[event.key];
    if (!step || event.target.tagName === 'INPUT') return;
    event.preventDefault();
    session.go(session.at + step);
  });

  const happened = () => {
    const change = lives.changes[session.at], n = Math.abs(change) - 1;
    const oom = lives.ooms.find(([at]) => at === session.at);
    if (oom) return `${size(oom[1])} were requested and refused`;
    if (!change) return 'no block came or went';
    return `${size(sizeOfBlock(lives, n))} ${change > 0 ? 'asked for' : 'given back'} (${lineOf(lives, n)})`;
  };
  let memory = null;
  const build = () => {
    memory = stateAt(lives, session.at);
    where.value = session.at;
    const { live, free, segments } = memory, at = momentWords(lives, session.at);
    words.textContent = (lives.is_state ? 'When the snapshot was taken: ' : `${at[0].toUpperCase()}${at.slice(1)}: ${happened()}. `)
      + `${size(live)} live and ${size(free)} free in ${grouped(segments)} segment${segments === 1 ? '' : 's'}.`;
    picture.show(memory);
    list.show(memory);
    root.dataset.at = session.at;
  };
  const drawSwatches = () => swatches.replaceChildren(
    ...[...session.grouping.groups, { name: 'waits for a stream', colour: '--pending', hidden: !lives.letGo.size },
      { name: 'free', colour: '--free' }, { name: 'does not match', colour: '--dim', hidden: !session.mask }]
      .filter(({ hidden }) => !hidden).map(({ name, colour }) => el('span', { class: 'swatch', style: `--swatch:var(${colour})` }, name)));
  session.listen((before) => {
    if (session.grouping !== before.grouping) drawSwatches();
    if (session.at !== before.at || session.mask !== before.mask) build();
    else { picture.draw(); list.show(memory); }
  });
  drawSwatches();
  build();
  redrawWith(picture.surface, picture.draw);
};
