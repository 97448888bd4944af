// Predicted time in driver calls, step by step, on a logarithmic scale.

const latencyChart = (root, file) => {
  const priced = file.runs.filter((run) => run.driver);
  const runs = priced.filter((run) => run.steps.length && run.kind !== 'recorded');
  const calls = priced.length ? Object.keys(priced[0].driver).filter((name) => name !== 'total' && priced.some((run) => run.driver[name])) : [];
  const behind = () => numbersBehind(root, 'The numbers behind this chart: the whole run, by call', () => ({
    heading: ['allocator', 'total', ...calls],
    rows: priced.filter((run) => run.kind !== 'recorded').map((run) => [run.label, ...['total', ...calls].map((name) => run.driver[name] ? nanos(run.driver[name]) : '–')]),
  }));
  if (!runs.length) {
    root.append(el('p', { class: 'empty' }, priced.length ? 'No training steps were found in this recording; the table has the whole run.' : 'No prices were asked for (--profile).'));
    return priced.length ? behind() : undefined;
  }
  const count = Math.max(...runs.map((run) => run.steps.length));
  const values = runs.flatMap((run) => run.steps.map((step) => step.ns)).filter(Boolean);
  const low = Math.floor(Math.log10(Math.min(...values, 1e6))), high = Math.ceil(Math.log10(Math.max(...values, 1e6) * 1.01));
  let at = null;
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application', 'aria-label': 'Driver time step by step. Arrow keys go from step to step.' });
  root.append(surface);

  const short = (ns) => nanos(ns).replace(/\.0+ /, ' ');
  const geometry = () => {
    const width = surface.clientWidth, wide = width > 720, height = wide ? 340 : 270;
    const left = 58, right = width - (wide ? 140 : 10), top = 28, zero = height - 46, bottom = zero - 22;
    const x = (n) => count === 1 ? (left + right) / 2 : left + 10 + n / (count - 1) * (right - left - 20);
    const y = (ns) => ns > 0 ? bottom - (Math.log10(ns) - low) / (high - low) * (bottom - top) : zero;
    return { width, wide, height, left, right, top, zero, bottom, x, y };
  };
  const draw = () => {
    const g = geometry(), picture = svg('svg', { height: g.height, viewBox: `0 0 ${g.width} ${g.height}`, 'aria-hidden': 'true' });
    const rule = (y, text) => picture.append(svg('line', { class: 'rule', x1: g.left, x2: g.right, y1: y, y2: y }), svg('text', { x: g.left - 8, y: y + 4, 'text-anchor': 'end' }, text));
    for (let power = low; power <= high; power++) rule(g.y(10 ** power), short(10 ** power));
    rule(g.zero, 'none');
    const each = Math.max(1, Math.ceil(count / (g.wide ? 20 : 8)));
    for (let n = 0; n < count; n += each) picture.append(svg('text', { x: g.x(n), y: g.height - 24, 'text-anchor': 'middle' }, n + 1));
    picture.append(svg('text', { x: (g.left + g.right) / 2, y: g.height - 4, 'text-anchor': 'middle' }, 'training step'),
      svg('text', { x: 0, y: 12 }, 'driver time in a step'));
    if (at !== null) picture.append(svg('line', { x1: g.x(at), x2: g.x(at), y1: g.top, y2: g.zero, style: 'stroke:var(--faint)' }));
    for (const run of runs) {
      const points = run.steps.map((step, n) => [g.x(n), g.y(step.ns)]);
      const colour = `var(${run.colour})`;
      picture.append(svg('polyline', { points: points.map((point) => point.join()).join(' '), fill: 'none', style: `stroke:${colour};stroke-width:1.6;stroke-linejoin:round` }));
      if (count <= 80) for (const [x, y] of points) picture.append(svg('circle', { cx: x, cy: y, r: g.wide ? 3 : 2.2, style: `fill:${colour}` }));
    }
    if (g.wide) {
      const ends = runs.map((run) => g.y(run.steps[run.steps.length - 1].ns)), moved = spread(ends, 16, g.top + 4, g.zero);
      runs.forEach((run, n) => picture.append(
        svg('path', { d: `M${g.right - 2},${ends[n]}h5L${g.right + 12},${moved[n]}h4`, fill: 'none', style: `stroke:var(${run.colour})` }),
        svg('text', { x: g.right + 20, y: moved[n] + 4, style: `fill:var(${run.colour}-text)` }, run.label)));
    }
    surface.replaceChildren(picture);
  };
  const read = (n, x, y) => {
    if (n !== at) { at = n; draw(); }
    const rows = runs.filter((run) => run.steps[n]).sort((a, b) => b.steps[n].ns - a.steps[n].ns).map((run) =>
      [run.label, `${run.steps[n].ns ? nanos(run.steps[n].ns) : 'none'}  ·  ${grouped(run.steps[n].calls)} calls`, run.colour]);
    showTip([el('b', {}, `Step ${n + 1}`), tipTable(rows)], x, y);
  };
  surface.addEventListener('pointermove', (event) => {
    const g = geometry(), x = event.clientX - surface.getBoundingClientRect().left;
    const n = Math.round((x - g.left - 10) / Math.max(1, g.right - g.left - 20) * (count - 1));
    read(Math.max(0, Math.min(count - 1, n)), event.clientX, event.clientY);
  });
  const leave = () => { hideTip(); at = null; draw(); };
  surface.addEventListener('pointerleave', leave);
  surface.addEventListener('blur', leave);
  surface.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const n = Math.max(0, Math.min(count - 1, at === null ? 0 : at + step)), box = surface.getBoundingClientRect(), g = geometry();
    read(n, box.left + g.x(n), box.top + g.height / 2);
  });
  const legend = el('div', { class: 'swatches', style: 'margin-top:.6rem' }, ...runs.map((run) => el('span', { class: 'swatch', style: `--swatch:var(${run.colour})` }, run.label)));
  root.append(legend);
  redrawWith(surface, () => { legend.hidden = surface.clientWidth > 720; draw(); });
  behind();
};
