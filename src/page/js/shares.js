// A fleet: which share of the ranks needs at most how much, a curve for each allocator, on a scale of doublings; and what
// the cards have, as dashed lines.

const sharesChart = (root, fleet) => {
  const runs = fleet.allocators.filter((run) => run.shares.length);
  if (!runs.length) return void root.append(el('p', { class: 'empty' }, 'No rank was recorded completely without running out of memory.'));
  const sizes = runs.flatMap((run) => run.shares.map(([bytes]) => bytes));
  const low = Math.floor(Math.log2(Math.min(...sizes)) - 0.01), high = Math.ceil(Math.log2(Math.max(...sizes)) + 0.01);
  const shareAt = (run, bytes) => run.shares.reduce((share, [size, upTo]) => size <= bytes ? upTo : share, 0);
  const cards = fleet.cards.filter((card) => Math.log2(card.bytes) >= low && Math.log2(card.bytes) <= high);
  // Where a curve or a card is: the places that the keyboard goes to.
  const places = [...new Set([...sizes, ...cards.map((card) => card.bytes)])].sort((a, b) => a - b);
  let at = null;
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application',
    'aria-label': 'Share of the ranks by peak memory. Arrow keys go from size to size.' });
  const legend = el('div', { class: 'swatches' },
    ...runs.map((run) => el('span', { class: 'swatch', style: `--swatch:var(${run.colour})` }, run.label)));
  root.append(legend, surface);

  const geometry = () => {
    const width = surface.clientWidth, wide = width > 720, height = wide ? 340 : 280;
    const left = 50, right = width - 12, top = 30, bottom = height - 46;
    const x = (bytes) => left + (Math.log2(bytes) - low) / (high - low) * (right - left);
    const y = (share) => bottom - share * (bottom - top);
    return { width, wide, height, left, right, top, bottom, x, y };
  };
  // Cards that are nearly as large share a line.
  const lines = (g) => cards.reduce((lines, card) => {
    const x = g.x(card.bytes), last = lines[lines.length - 1];
    if (last && x - last.x < 6) last.cards.push(card);
    else lines.push({ x, cards: [card] });
    return lines;
  }, []);
  const drawCards = (g, picture) => {
    let end = 0;
    for (const { x, cards: [first, ...more] } of lines(g)) {
      picture.append(svg('line', { x1: x, x2: x, y1: g.top, y2: g.bottom, style: 'stroke:var(--faint);stroke-dasharray:4 4' }));
      const name = more.length ? `${first.name} +${more.length}` : first.name, half = 3.6 * name.length;
      const middle = Math.max(half, Math.min(g.width - half, x));
      if (middle - half < end + 10) continue;
      picture.append(svg('text', { x: middle, y: g.top - 8, 'text-anchor': 'middle' }, name));
      end = middle + half;
    }
  };
  const drawScale = (g, picture) => {
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      picture.append(svg('line', { class: 'rule', x1: g.left, x2: g.right, y1: g.y(share), y2: g.y(share) }),
        svg('text', { x: g.left - 8, y: g.y(share) + 4, 'text-anchor': 'end' }, `${100 * share} %`));
    }
    const each = Math.max(1, Math.ceil((high - low + 1) / Math.floor((g.right - g.left) / 64)));
    for (let doubling = low; doubling <= high; doubling += each) {
      const x = g.x(2 ** doubling), anchor = doubling === high ? 'end' : 'middle';
      picture.append(svg('text', { x: doubling === high ? g.width : x, y: g.bottom + 18, 'text-anchor': anchor }, size(2 ** doubling)));
    }
    picture.append(svg('text', { x: (g.left + g.right) / 2, y: g.height - 6, 'text-anchor': 'middle' }, 'peak reserved memory of a rank'));
  };
  const curve = (g, run) => {
    let path = `M${g.left},${g.bottom}`;
    for (const [bytes, share] of run.shares) path += `H${g.x(bytes)}V${g.y(share)}`;
    return svg('path', { d: `${path}H${g.right}`, fill: 'none', style: `stroke:var(${run.colour});stroke-width:2.2;stroke-linejoin:round` });
  };
  const draw = () => {
    const g = geometry(), picture = svg('svg', { height: g.height, viewBox: `0 0 ${g.width} ${g.height}`, 'aria-hidden': 'true' });
    drawScale(g, picture);
    drawCards(g, picture);
    if (at !== null) picture.append(svg('line', { x1: g.x(at), x2: g.x(at), y1: g.top, y2: g.bottom, style: 'stroke:var(--soft)' }));
    picture.append(...runs.map((run) => curve(g, run)));
    surface.replaceChildren(picture);
  };
  const read = (bytes, y = null) => {
    at = bytes;
    draw();
    const g = geometry(), box = surface.getBoundingClientRect();
    const near = lines(g).filter((line) => Math.abs(line.x - g.x(at)) < 6).flatMap((line) => line.cards);
    const rows = runs.map((run) => [run.label, percent(shareAt(run, at), 1), run.colour]);
    const names = near.map((card) => [card.name, size(card.bytes)]);
    showTip([el('b', {}, `Ranks that need at most ${size(Math.round(at))}`), tipTable([...rows, ...names])],
      box.left + g.x(at), y ?? box.top + g.height / 2);
  };
  surface.addEventListener('pointermove', (event) => {
    const g = geometry(), x = Math.max(g.left, Math.min(g.right, event.clientX - surface.getBoundingClientRect().left));
    const near = cards.find((card) => Math.abs(g.x(card.bytes) - x) < 4);
    read(near ? near.bytes : 2 ** (low + (x - g.left) / (g.right - g.left) * (high - low)), event.clientY);
  });
  const leave = () => { hideTip(); at = null; draw(); };
  surface.addEventListener('pointerleave', leave);
  surface.addEventListener('blur', leave);
  surface.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const now = places.filter((bytes) => bytes < (at ?? 0)).length;
    read(places[Math.max(0, Math.min(places.length - 1, at === null ? 0 : now + step))]);
  });
  redrawWith(surface, draw);
  numbersBehind(root, 'The numbers behind this chart: ranks for which a card is enough', () => ({
    heading: ['card', 'memory', ...runs.map((run) => run.label)],
    rows: fleet.cards.map((card) => [card.name, size(card.bytes), ...runs.map((run) => percent(shareAt(run, card.bytes), 1))]),
  }));
};
