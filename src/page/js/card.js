// The whole card over time: its owners one on the other, up to the card's edge.

const cardChart = (root, { card }) => {
  const { times_us: times, owners, bytes, usable_bytes: edge } = card;
  const colours = owners.map((_, n) => `--band-${n}`), whole = Math.max(1, times[times.length - 1]);
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application',
    'aria-label': 'The card by owner over time. Arrow keys move, plus and minus zoom, 0 shows all.' });
  const canvas = el('canvas'), words = el('output', {});
  surface.append(canvas);
  let area = { left: 0, right: 0, top: 0, bottom: 0, ceiling: 1 };
  const view = viewport(surface, { whole, least: whole / 2000, area: () => area, draw: () => draw(), read: (y) => read(y) });
  root.append(
    el('div', { class: 'swatches' }, ...owners.map((name, n) => el('span', { class: 'swatch', style: `--swatch:var(${colours[n]})` }, name))),
    surface, viewportTools(view, words, []));

  // The last look before a moment.
  const lookAt = (at) => {
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (times[middle] <= at) low = middle; else high = middle - 1;
    }
    return low;
  };
  const used = (look) => bytes[look].reduce((a, b) => a + b, 0);
  const draw = () => {
    const width = surface.clientWidth, wide = width > 720, height = wide ? 400 : 280;
    area = { left: wide ? 58 : 46, right: width - 8, top: 26, bottom: height - 42, wide, ceiling: Math.max(1, edge) * 1.06 };
    const context = prepare(canvas, width, height);
    const looks = Array.from({ length: Math.max(0, area.right - area.left) }, (_, x) => lookAt(view.toAt(area.left + x + 1)));
    drawStack(context, area, colours, (x, n) => bytes[looks[x]][n]);
    drawLevels(context, area);
    drawMarks(context, view, area, 1e6, (mark) => String(+mark.toFixed(6)), 'seconds since the first look');
    const y = area.bottom - edge / area.ceiling * (area.bottom - area.top);
    context.strokeStyle = context.fillStyle = css('--alarm');
    context.setLineDash([3, 4]);
    context.strokeRect(area.left, y, area.right - area.left, 0);
    for (const at of card.ooms.map((look) => times[look])) {
      if (at >= view.from && at <= view.to) context.strokeRect(view.toX(at), area.top, 0, area.bottom - area.top);
    }
    context.setLineDash([]);
    context.textAlign = 'right';
    context.fillText(`${card.name}: ${size(edge)}`, area.right, y - 9);
    view.drawCursor(context, area.top, area.bottom);
    words.textContent = `${grouped(times.length)} looks, ${nanos(whole * 1e3)}`;
  };
  const rowsAt = (look) => owners.map((name, n) => [name, size(bytes[look][n]), colours[n]]).filter((_, n) => bytes[look][n] > 0).reverse();
  const read = (y = null) => {
    const look = lookAt(view.cursor), box = surface.getBoundingClientRect();
    const why = card.ooms.includes(look) ? ', out of memory' : '';
    const rows = [...rowsAt(look), ['in use', size(used(look))], ['free', size(Math.max(0, edge - used(look)))]];
    showTip([el('b', {}, `${nanos(times[look] * 1e3)}${why}`), tipTable(rows)], box.left + view.toX(view.cursor), y ?? box.top + 200);
    view.soon();
  };
  redrawWith(surface, draw);
  numbersBehind(root, 'The numbers behind this chart', () => ({
    heading: ['after', ...owners, 'in use'],
    rows: times.map((at, look) => [nanos(at * 1e3), ...bytes[look].map(size), size(used(look))]),
  }));
};
