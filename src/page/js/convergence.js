// One square for each step and allocator: how many driver calls it made.

const convergenceChart = (root, file) => {
  const runs = file.runs.filter((run) => run.steps.length && run.kind !== 'bound' && run.kind !== 'recorded');
  if (!runs.length) return void root.append(el('p', { class: 'empty' }, 'No training steps were found in this recording.'));
  const count = Math.max(...runs.map((run) => run.steps.length));
  const heat = (calls) => calls > 0 ? `var(--heat-${Math.min(5, 1 + Math.floor(Math.log10(calls)))})` : 'none';
  const steps = (run) => run.converged === null ? 'to the last step' : run.converged === 0 ? 'none at all' : `none after step ${run.converged}`;
  root.append(el('div', { class: 'swatches' }, ...['1 to 9 calls', '10 to 99', '100 to 999', '1,000 to 9,999', '10,000 or more'].map((text, n) =>
    el('span', { class: 'swatch', style: `--swatch:var(--heat-${n + 1})` }, text))));
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application', 'aria-label': `Driver calls step by step. ${runs.map((run) => `${run.label}: ${steps(run)}`).join('. ')}. Arrow keys move.` });
  root.append(surface);
  let at = null;
  const geometry = () => {
    const width = surface.clientWidth, wide = width > 720;
    const left = wide ? 130 : 0, right = wide ? width - 140 : width, line = wide ? 30 : 46, side = wide ? 24 : 20;
    const cell = (right - left) / count, square = Math.max(1, Math.min(side, cell - Math.min(3, cell / 4)));
    return { width, wide, left, line, side, cell: Math.min(cell, side + 6), square, height: runs.length * line + 24 };
  };
  const draw = () => {
    const g = geometry(), picture = svg('svg', { height: g.height, viewBox: `0 0 ${g.width} ${g.height}`, 'aria-hidden': 'true' });
    runs.forEach((run, row) => {
      const top = row * g.line + (g.wide ? 0 : 20);
      const middle = g.wide ? top + g.side / 2 + 4 : top - 6;
      picture.append(svg('text', { x: 0, y: middle, style: 'fill:var(--ink);font-size:13px' }, run.label));
      picture.append(svg('text', g.wide ? { x: g.left + count * g.cell + 12, y: middle } : { x: g.width, y: middle, 'text-anchor': 'end' }, steps(run)));
      run.steps.forEach((step, n) => {
        const empty = step.calls === 0;
        picture.append(svg('rect', { x: g.left + n * g.cell + 0.5, y: top + 0.5, width: g.square, height: g.side - 1, rx: Math.min(4, g.square / 3),
          style: `fill:${heat(step.calls)};${empty && g.square > 3 ? 'stroke:var(--line)' : ''}${at && at[0] === row && at[1] === n ? ';stroke:var(--ink);stroke-width:2' : ''}` }));
      });
    });
    const each = Math.max(1, Math.ceil(count / Math.max(2, Math.floor(count * g.cell / 34))));
    for (let n = 0; n < count; n += each) picture.append(svg('text', { x: g.left + n * g.cell + g.square / 2, y: g.height - 6, 'text-anchor': 'middle' }, n + 1));
    surface.replaceChildren(picture);
  };
  const read = (row, n, x, y) => {
    if (!at || at[0] !== row || at[1] !== n) { at = [row, n]; draw(); }
    const run = runs[row], step = run.steps[n], rows = [['driver calls', grouped(step.calls)]];
    if (step.sblocks) rows.push(['sBlocks stitched', grouped(step.sblocks)]);
    if (step.ns) rows.push(['driver time', nanos(step.ns)]);
    showTip([el('b', {}, `${run.label}, step ${n + 1}`), tipTable(rows)], x, y);
  };
  const leave = () => { hideTip(); if (at) { at = null; draw(); } };
  surface.addEventListener('pointermove', (event) => {
    const g = geometry(), box = surface.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / g.line), n = Math.floor((event.clientX - box.left - g.left) / g.cell);
    if (runs[row] && runs[row].steps[n]) read(row, n, event.clientX, event.clientY); else leave();
  });
  surface.addEventListener('pointerleave', leave);
  surface.addEventListener('blur', leave);
  surface.addEventListener('keydown', (event) => {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(runs.length - 1, at ? at[0] + move[0] : 0));
    const n = Math.max(0, Math.min(runs[row].steps.length - 1, at ? at[1] + move[1] : 0));
    const g = geometry(), box = surface.getBoundingClientRect();
    read(row, n, box.left + g.left + n * g.cell, box.top + row * g.line);
  });
  redrawWith(surface, draw);
  numbersBehind(root, 'The numbers behind this chart: driver calls', () => ({
    heading: ['step', ...runs.map((run) => run.label)],
    rows: Array.from({ length: count }, (_, n) => [String(n + 1), ...runs.map((run) => run.steps[n] ? grouped(run.steps[n].calls) : '–')]),
  }));
};
