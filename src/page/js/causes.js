// Where the memory went at the peak: a bar for each allocator, all on one scale.

const causesChart = (root, file, names) => {
  const runs = file.runs.filter((run) => run.peak);
  if (!runs.length) return void root.append(el('p', { class: 'empty' }, 'No allocator was simulated.'));
  const most = Math.max(1, ...runs.map((run) => run.peak.reserved));
  const parts = (run) => [['requested', run.peak.requested, '--requested'],
    ...run.peak.causes.map((bytes, n) => [names[n], bytes, `--cause-${n}`])];
  const present = parts(runs[0]).map(([name, , variable], n) => [name, variable, runs.some((run) => parts(run)[n][1])]);
  root.append(el('div', { class: 'swatches' }, ...present.filter(([, , any]) => any).map(([name, variable]) =>
    el('span', { class: 'swatch', style: `--swatch:var(${variable})` }, name))));

  const box = el('div', { class: 'split' });
  for (const run of runs) {
    const all = parts(run), lost = run.peak.reserved - run.peak.requested;
    const stack = el('div', { class: 'stack', tabindex: '0', role: 'img',
      'aria-label': `${run.label}: ${all.filter(([, bytes]) => bytes).map(([name, bytes]) => `${name} ${size(bytes)}`).join(', ')}` },
    ...all.filter(([, bytes]) => bytes).map(([, bytes, variable]) =>
      el('i', { style: `width:${100 * bytes / most}%;background:var(${variable})` })));
    const read = (x, y) => {
      const rows = all.map(([name, bytes, variable]) => [name, bytes ? `${size(bytes)}  ·  ${percent(bytes, run.peak.reserved)}` : '–', variable]);
      const pending = run.peak.pending ? [el('div', { class: 'off' }, `${size(run.peak.pending)} of what was requested was freed, and waited for a stream.`)] : [];
      showTip([el('b', {}, `${run.label}: ${run.sign}${size(run.peak.reserved)}`), tipTable(rows), ...pending, el('div', { class: 'off' }, run.peak.words)], x, y);
    };
    stack.addEventListener('pointermove', (event) => read(event.clientX, event.clientY));
    stack.addEventListener('pointerleave', hideTip);
    stack.addEventListener('focus', () => {
      const place = stack.getBoundingClientRect();
      if (stack.matches(':focus-visible')) read(place.left + 20, place.top);
    });
    stack.addEventListener('blur', hideTip);
    const total = el('span', { class: 'total' }, run.sign + size(run.peak.reserved), ' ',
      el('small', {}, lost ? `${percent(lost, run.peak.reserved)} lost` : 'none lost'));
    const name = el('span', { class: 'name' }, run.label);
    box.append(el('div', { class: 'row' }, name, ...(matchMedia('(max-width: 640px)').matches ? [total, stack] : [stack, total])));
  }
  root.append(box);
  numbersBehind(root, 'The numbers behind this chart, in bytes', () => ({
    heading: ['allocator', 'reserved', 'requested', ...names],
    rows: runs.map((run) => [run.label, ...[run.peak.reserved, run.peak.requested, ...run.peak.causes].map(grouped)]),
  }));
};
