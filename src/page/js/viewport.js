// A viewport: the part of an axis from 0 to `whole` that a chart shows, moved by dragging, keys, and Ctrl with the wheel;
// and a cursor in it, moved by the pointer and the arrow keys.
//
// The chart hands over `area()`, the left and right end of the axis in pixels, and what to do: `draw()`, `read(y)` at the
// cursor, `leave()`, `pick(at)` on a click, and `keys`, more keys with what they do.

const viewport = (surface, { whole, least, area, draw, read, leave, pick, keys = {} }) => {
  const view = { from: 0, to: whole, cursor: null, drag: null };
  let frame = null;
  view.toX = (at) => area().left + (at - view.from) / (view.to - view.from) * (area().right - area().left);
  view.toAt = (x) => view.from + (x - area().left) / (area().right - area().left) * (view.to - view.from);
  view.soon = () => { frame ??= requestAnimationFrame(() => { frame = null; draw(); }); };
  view.show = (start, end) => {
    const length = Math.max(least, Math.min(whole, end - start));
    view.from = Math.max(0, Math.min(whole - length, start));
    view.to = view.from + length;
    view.soon();
  };
  view.all = () => view.show(0, whole);
  view.zoom = (factor, around = view.cursor ?? (view.from + view.to) / 2) =>
    view.show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  view.move = (at) => {
    view.cursor = Math.max(0, Math.min(whole, at));
    const half = (view.to - view.from) / 2;
    if (view.cursor < view.from || view.cursor > view.to) view.show(view.cursor - half, view.cursor + half);
    read();
  };
  const gone = () => { view.cursor = null; hideTip(); if (leave) leave(); view.soon(); };

  const placeOf = (event) =>
    Math.max(view.from, Math.min(view.to, view.toAt(event.clientX - surface.getBoundingClientRect().left)));
  surface.addEventListener('pointermove', (event) => { view.cursor = placeOf(event); read(event.clientY); });
  surface.addEventListener('pointerleave', () => { if (view.drag === null) gone(); });
  surface.addEventListener('pointerdown', (event) => {
    if (event.pointerType === 'touch' || event.button !== 0) return;
    view.drag = placeOf(event);
    surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener('pointerup', (event) => {
    if (view.drag === null) return;
    const [start, end] = [view.drag, placeOf(event)].sort((a, b) => a - b);
    view.drag = null;
    if (view.toX(end) - view.toX(start) > 6) view.show(start, end);
    else if (pick) pick(end);
    view.soon();
  });
  surface.addEventListener('pointercancel', () => { view.drag = null; view.soon(); });
  surface.addEventListener('dblclick', view.all);
  surface.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    view.zoom(event.deltaY > 0 ? 1.25 : 0.8, placeOf(event));
  }, { passive: false });
  surface.addEventListener('blur', gone);
  surface.addEventListener('keydown', (event) => {
    const pixel = (view.to - view.from) / (area().right - area().left), by = pixel * (event.shiftKey ? 60 : 6);
    const now = view.cursor ?? view.from;
    const act = {
      ArrowLeft: () => view.move(now - by), ArrowRight: () => view.move(now + by),
      Home: () => view.move(0), End: () => view.move(whole),
      '+': () => view.zoom(0.5), '=': () => view.zoom(0.5), '-': () => view.zoom(2), 0: view.all, Escape: gone, ...keys,
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  // The cursor as a line, and what is being dragged over.
  view.drawCursor = (context, top, bottom) => {
    if (view.cursor === null) return;
    if (view.drag !== null) {
      context.fillStyle = css('--focus');
      context.globalAlpha = 0.14;
      const [a, b] = [view.toX(view.drag), view.toX(view.cursor)].sort((x, y) => x - y);
      context.fillRect(a, top, b - a, bottom - top);
      context.globalAlpha = 1;
    }
    const x = Math.round(view.toX(view.cursor)) + 0.5;
    context.strokeStyle = css('--soft');
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
  };
  return view;
};

// The buttons below such a chart, after the words that say what it shows.
const viewportTools = (view, words, more) => {
  const tool = (text, label, onclick) => el('button', { type: 'button', 'aria-label': label, onclick }, text);
  return el('div', { class: 'tools' }, words, tool('−', 'Zoom out', () => view.zoom(2)), tool('+', 'Zoom in', () => view.zoom(0.5)),
    ...more.map(([text, label, act]) => tool(text, label, act)), tool('All', 'Show all', view.all));
};

// Bands one on the other: in each column of pixels, `bytes(x, n)` of the colour of this number.
const drawStack = (context, area, colours, bytes) => {
  const base = new Float64Array(Math.max(0, area.right - area.left));
  const toY = (height) => area.bottom - height / area.ceiling * (area.bottom - area.top);
  colours.forEach((colour, n) => {
    context.fillStyle = css(colour);
    base.forEach((below, x) => {
      const more = bytes(x, n);
      if (more <= 0) return;
      base[x] = below + more;
      context.fillRect(area.left + x, toY(base[x]), 1, toY(below) - toY(base[x]));
    });
  });
};

// Horizontal lines with bytes, and the unit above them.
const drawLevels = (context, area) => {
  const [unit, name] = UNITS.find(([unit]) => area.ceiling >= 2 * unit) || [1, 'B'];
  context.strokeStyle = css('--line');
  context.fillStyle = css('--soft');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const level of ticks(0, area.ceiling / unit, area.wide ? 8 : 5).all) {
    const y = Math.round(area.bottom - level * unit / area.ceiling * (area.bottom - area.top)) + 0.5;
    context.beginPath();
    context.moveTo(area.left, y);
    context.lineTo(area.right, y);
    context.stroke();
    context.fillText(String(+level.toFixed(6)), area.left - 8, y);
  }
  context.textAlign = 'left';
  context.fillText(name, 0, 9);
};

// Dotted lines where training steps begin.
const drawSteps = (context, view, area, steps) => {
  const inside = steps.map((at, n) => [at, n + 1]).filter(([at]) => at >= view.from && at <= view.to);
  if (inside.length > 150) return;
  let last = -Infinity;
  context.strokeStyle = css('--line');
  context.fillStyle = css('--faint');
  context.textAlign = 'center';
  context.setLineDash([2, 3]);
  for (const [at, number] of inside) {
    const x = Math.round(view.toX(at)) + 0.5;
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom);
    context.stroke();
    const text = last === -Infinity ? `step ${number}` : String(number);
    const half = context.measureText(text).width / 2;
    const middle = Math.max(x, area.left + half);
    if (middle - half > last + 8) {
      context.fillText(text, middle, area.top - 11);
      last = middle + half;
    }
  }
  context.setLineDash([]);
};

// Numbers below the axis, `scale` of its units each, and what they are.
const drawMarks = (context, view, area, scale, write, words) => {
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillStyle = css('--soft');
  for (const mark of ticks(view.from / scale, view.to / scale, area.wide ? 10 : 5).all) {
    context.fillText(write(mark), view.toX(mark * scale), area.bottom + 14);
  }
  context.fillText(words, (area.left + area.right) / 2, area.bottom + 33);
};
