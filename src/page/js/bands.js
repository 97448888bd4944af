// Bands: live bytes by name, one on the other, event after event; or the largest single blocks.

const MOST_BLOCKS = 150;

const bandsChart = (root, lives, session) => {
  const whole = Math.max(1, lives.events);
  const names = session.kinds.map((kind) => ({ name: kind.name }));
  const by = choices(names, 'Bands by', (n) => session.change({ kind: session.kinds[n] }), session.kinds.indexOf(session.kind));
  const legend = el('div', { class: 'swatches' });
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application',
    'aria-label': 'Live bytes by name. Arrow keys move, plus and minus zoom, Enter shows the memory at the event.' });
  const canvas = el('canvas'), words = el('output', {});
  surface.append(canvas);

  let area = { left: 0, right: 0, top: 0, bottom: 0, ceiling: 1 }, columns = null, blocks = [];
  const toPeak = () => {
    const { event } = session.grouping.peak, half = whole / 20;
    view.cursor = event;
    view.show(event - half, event + half);
    session.go(event);
  };
  const view = viewport(surface, {
    whole, least: Math.min(whole, 16), area: () => area, draw: () => draw(), read: (y) => read(y), pick: (at) => pick(at),
    keys: { p: toPeak, P: toPeak, Enter: () => pick(view.cursor ?? view.from) },
  });
  root.append(by, legend, surface, viewportTools(view, words, [['Peak', 'Zoom to the peak', toPeak]]),
    el('p', { class: 'hint' }, 'Click to see the memory at an event. Drag to zoom, double-click to see all. With the keyboard: arrows, + and −, 0 for all, P for the peak, Enter.'));

  const toY = (bytes) => area.bottom - bytes / area.ceiling * (area.bottom - area.top);
  const columnAt = (at) => Math.max(0, Math.min(area.columns - 1, Math.floor((at - view.from) / (view.to - view.from) * area.columns)));
  const layout = (width) => {
    const wide = width > 720, height = wide ? 400 : 280, left = wide ? 58 : 46, right = width - 8;
    area = { left, right, top: 26, bottom: height - 42, wide, height, ceiling: Math.max(1, lives.held.most) * 1.06, columns: Math.max(1, right - left) };
  };

  const drawBands = (context) => {
    drawStack(context, area, session.grouping.groups.map(({ colour }) => colour), (x, g) => columns.bytes[x * columns.count + g]);
  };

  // Each of the largest blocks by itself, one on the other in the order of their requests; what all others have is on top.
  const drawBlocks = (context) => {
    blocks = [];
    const base = new Float64Array(area.columns), { at, high } = columns;
    for (const n of largestIn(lives, session.mask, view.from, view.to, MOST_BLOCKS)) {
      const bytes = sizeOfBlock(lives, n);
      let run = null;
      for (let x = columnAt(lives.born[n]); x < area.columns && at[x] < lives.died[n]; x++) {
        if (at[x] < lives.born[n]) continue;
        if (run && run.end === x && run.from === base[x]) run.end++;
        else blocks.push(run = { n, start: x, end: x + 1, from: base[x], bytes });
        base[x] += bytes;
      }
    }
    const colours = lives.categories.map((_, n) => css(`--band-${n}`));
    for (const { n, start, end, from, bytes } of blocks) {
      context.fillStyle = colours[lives.origins[lives.origin[n]][1]];
      const y = toY(from + bytes), height = toY(from) - y;
      context.fillRect(area.left + start, y, end - start, Math.max(0.5, height - (height > 3 ? 1 : 0)));
    }
    context.fillStyle = css('--moment');
    for (let x = 0; x < area.columns; x++) {
      const top = toY(Math.max(high[x], base[x]));
      context.fillRect(area.left + x, top, 1, toY(base[x]) - top);
    }
  };

  const drawHeld = (context) => {
    context.strokeStyle = css('--ink');
    context.lineWidth = 1.4;
    context.beginPath();
    for (let x = 0; x < area.columns; x++) {
      const last = view.from + (x + 1) / area.columns * (view.to - view.from);
      context.lineTo(area.left + x, toY(heldAt(lives, Math.max(columns.at[x], Math.ceil(last) - 1))));
    }
    context.stroke();
    context.lineWidth = 1;
  };

  const drawEvent = (context) => {
    if (session.at < view.from || session.at > view.to) return;
    const x = Math.round(view.toX(session.at + 0.5)) + 0.5;
    context.strokeStyle = css('--alarm');
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom);
    context.stroke();
  };

  // All but the cursor and the event; kept until something else is shown.
  const scene = el('canvas');
  let painted = [];
  const paint = (width) => {
    const now = [view.from, view.to, width, session.grouping, window.devicePixelRatio, css('--page')];
    if (now.every((value, n) => value === painted[n])) return;
    painted = now;
    layout(width);
    const context = prepare(scene, width, area.height);
    columns = columnsOf(lives, session.grouping, view.from, view.to, area.columns);
    if (session.kind.single) drawBlocks(context); else drawBands(context);
    drawLevels(context, area);
    drawMarks(context, view, area, 1, grouped, 'events');
    drawSteps(context, view, area, lives.steps);
    drawHeld(context);
  };
  const draw = () => {
    const width = surface.clientWidth, begin = performance.now();
    if (!width) return;
    paint(width);
    const context = prepare(canvas, width, area.height);
    context.drawImage(scene, 0, 0, width, area.height);
    drawEvent(context);
    view.drawCursor(context, area.top, area.bottom);
    words.textContent = view.from === 0 && view.to === whole ? `All ${grouped(whole)} events`
      : `Events ${grouped(view.from)} to ${grouped(view.to)}`;
    Object.assign(root.dataset, { from: view.from, to: view.to, took: (performance.now() - begin).toFixed(1) });
  };

  const drawLegend = () => legend.replaceChildren(
    ...session.grouping.groups.map(({ name, most, colour }) =>
      el('span', { class: 'swatch', style: `--swatch:var(${colour})`, title: most ? `at most ${size(most)}` : '' }, name)),
    el('span', { class: 'line' }, `held by ${lives.allocator}`));

  // The single block under the pointer.
  const blockUnder = (y) => {
    if (!session.kind.single || y === null) return null;
    const x = columnAt(view.cursor), bytes = (area.bottom - (y - surface.getBoundingClientRect().top)) / (area.bottom - area.top) * area.ceiling;
    const run = blocks.find((run) => run.start <= x && x < run.end && run.from <= bytes && bytes < run.from + run.bytes);
    return run ? run.n : null;
  };
  let pointed = null;
  const read = (y = null) => {
    const x = columnAt(view.cursor), { groups } = session.grouping;
    pointed = blockUnder(y);
    const box = surface.getBoundingClientRect();
    let content;
    if (pointed !== null) content = [el('b', {}, lineOf(lives, pointed)), tipTable(blockRows(lives, pointed)), stackLines(lives, pointed, 6)];
    else {
      const rows = groups.map(({ name, colour }, g) => [name, columns.bytes[x * columns.count + g], colour]).filter(([, bytes]) => bytes > 0)
        .reverse().map(([name, bytes, colour]) => [name, size(bytes), colour]);
      rows.push(['live', size(Math.max(0, columns.high[x]))], ['held', size(heldAt(lives, columns.at[x]))]);
      content = [el('b', {}, momentWords(lives, columns.at[x])), tipTable(rows)];
    }
    showTip(content, box.left + view.toX(view.cursor), y ?? box.top + area.height / 2);
    view.soon();
  };
  const pick = (at) => {
    const event = columns.at[columnAt(at)];
    session.change({ at: event, ...(pointed === null ? {} : { selected: pointed }) });
  };

  session.listen((before) => {
    if (session.grouping !== before.grouping) drawLegend();
    if (session.at !== before.at && (session.at < view.from || session.at >= view.to)) {
      const half = (view.to - view.from) / 2;
      view.show(session.at - half, session.at + half);
    }
    view.soon();
  });
  drawLegend();
  redrawWith(surface, draw);
  numbersBehind(root, 'The numbers behind this chart', () => ({
    heading: ['name', 'at most', 'at the peak'],
    rows: session.grouping.groups.map(({ name, most }, g) => {
      const { count, high, bytes } = columnsOf(lives, session.grouping, 0, whole, 1);
      return [name, most ? size(most) : '–', high[0] > 0 ? size(bytes[g % count]) : '0 B'];
    }),
  }));
};
