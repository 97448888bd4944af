// Memory over time: a line for what each allocator held, an area for what was in use.

const timelineChart = (root, file) => {
  const active = decodeSeries(file.active);
  const runs = file.runs.map((run) => Object.assign({ values: decodeSeries(run.series) }, run));
  for (const run of runs) run.shown = run.kind === 'recorded' || run.kind === 'choice';
  const lowest = runs.filter((run) => run.kind === 'bound').sort((a, b) => a.reserved - b.reserved)[0];
  if (lowest) lowest.shown = true;
  const whole = Math.max(1, file.end);

  // From a place on a series' own axis to ours: a recording without times counts its entries, which are not our events.
  const ours = (series, at) => file.has_times ? at : at / (series.end + 1) * whole;
  const bucketAt = (series, at) => {
    const place = file.has_times ? at : at / whole * (series.end + 1);
    return Math.max(0, Math.min(series.count - 1, Math.floor(place / series.width)));
  };
  const place = (at) => file.has_times ? nanos(at * 1e3) : `event ${grouped(at)}`;

  const legend = el('div', { class: 'legend', role: 'group', 'aria-label': 'Lines shown' });
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application',
    'aria-label': 'Memory over time. Arrow keys move, plus and minus zoom, 0 shows all, P goes to the peak.' });
  const canvas = el('canvas');
  surface.append(canvas);

  let area = { left: 0, right: 0, top: 0, bottom: 0, ceiling: 1 };
  const toPeak = () => {
    const run = runs.find((run) => run.shown && run.kind !== 'bound') || runs[0];
    if (!run) return;
    const at = ours(run.values, run.peak_at), half = whole / 20;
    view.cursor = at;
    view.show(at - half, at + half);
    read();
  };
  const view = viewport(surface, {
    whole, least: whole / 2000, area: () => area, draw: () => draw(), read: (y) => read(y), keys: { p: toPeak, P: toPeak },
  });
  const toY = (bytes) => area.bottom - bytes / area.ceiling * (area.bottom - area.top);

  const words = el('output', {});
  root.append(legend, surface, viewportTools(view, words, [['Peak', 'Zoom to the peak', toPeak]]),
    el('p', { class: 'hint' }, 'Drag to zoom, double-click to see all. With the keyboard: arrows, + and −, 0 for all, P for the peak.'));

  runs.forEach((run) => {
    const dashed = run.kind === 'bound' ? ' dashed' : '';
    const button = el('button', { type: 'button', 'aria-pressed': String(run.shown), style: `--run:var(${run.colour})` },
      el('span', { class: `key${dashed}` }), run.label);
    button.addEventListener('click', () => {
      run.shown = !run.shown;
      button.setAttribute('aria-pressed', String(run.shown));
      draw();
    });
    legend.append(button);
  });

  const layout = (width) => {
    const wide = width > 720, shown = runs.filter((run) => run.shown);
    const memory = file.device_memory || 0, highest = Math.max(1, ...shown.map((run) => run.reserved),
      active.count ? active.high.reduce((a, b) => Math.max(a, b), 0) : 0);
    const ceiling = (memory >= highest && memory < 1.3 * highest ? memory : highest) * 1.06;
    const height = wide ? 440 : 300;
    area = { left: wide ? 58 : 46, right: width - (wide ? 150 : 8), top: 26, bottom: height - 42, ceiling, wide, height };
  };

  // Calls back with the lowest and highest value within each pixel.
  const perPixel = (series, each) => {
    const ended = ours(series, series.count * series.width);
    for (let x = area.left; x < area.right; x++) {
      const start = view.toAt(x);
      if (start > ended && start > view.from) return;
      let low = Infinity, high = -Infinity;
      for (let n = bucketAt(series, start), last = bucketAt(series, view.toAt(x + 1)); n <= last; n++) {
        low = Math.min(low, series.low[n]);
        high = Math.max(high, series.high[n]);
      }
      each(x, low, high);
    }
  };

  const drawActive = (context) => {
    const column = (colour, value) => {
      context.fillStyle = css(colour);
      perPixel(active, (x, low, high) => {
        const y = toY(value(low, high));
        context.fillRect(x, y, 1, area.bottom - y);
      });
    };
    if (!active.count) return;
    column('--moment', (_, high) => high);
    column('--always', (low) => low);
  };

  const drawRun = (context, run) => {
    context.strokeStyle = css(run.colour);
    context.lineWidth = run.kind === 'recorded' ? 4.5 : 1.8;
    if (run.kind === 'bound') context.setLineDash([7, 5]);
    context.beginPath();
    let last = null;
    if (run.kind === 'bound') {
      context.moveTo(area.left, toY(run.reserved));
      context.lineTo(area.right, toY(run.reserved));
    } else if (run.values.count) {
      perPixel(run.values, (x, low, high) => {
        if (last === null) context.moveTo(x, toY(low));
        else context.lineTo(x, toY(last));
        const rising = last === null || last - low <= high - last;
        context.lineTo(x, toY(rising ? low : high));
        context.lineTo(x, toY(rising ? high : low));
        last = rising ? high : low;
      });
      if (last !== null && view.to >= whole) context.lineTo(area.right, toY(last));
    }
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    run.end = run.kind === 'bound' ? run.reserved : last === null ? run.reserved : last;
  };

  const drawPeak = (context, run) => {
    const peak = ours(run.values, run.peak_at), { from, to } = view;
    if (run.kind !== 'bound' && peak >= from && peak <= to) {
      context.fillStyle = css('--page');
      context.strokeStyle = css(run.colour);
      context.lineWidth = 2;
      context.beginPath();
      context.arc(Math.max(area.left, Math.min(area.right, view.toX(peak))), toY(run.reserved), 4, 0, 7);
      context.fill();
      context.stroke();
    }
    if (run.first_oom !== null && run.first_oom >= from && run.first_oom <= to) {
      const at = bucketAt(run.values, run.first_oom), x = view.toX(run.first_oom), y = toY(run.values.high[at] || 0);
      context.strokeStyle = css('--alarm');
      context.lineWidth = 2.5;
      context.beginPath();
      for (const [dx, dy] of [[6, 6], [6, -6]]) { context.moveTo(x - dx, y - dy); context.lineTo(x + dx, y + dy); }
      context.stroke();
    }
    context.lineWidth = 1;
  };

  const drawNames = (context, shown) => {
    const ends = shown.map((run) => toY(run.end));
    const moved = spread(ends, 17, area.top, area.bottom);
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    shown.forEach((run, n) => {
      context.strokeStyle = css(run.colour);
      context.fillStyle = css(`${run.colour}-text`);
      context.beginPath();
      context.moveTo(area.right + 1, ends[n]);
      context.lineTo(area.right + 6, ends[n]);
      context.lineTo(area.right + 15, moved[n]);
      context.lineTo(area.right + 19, moved[n]);
      context.stroke();
      context.fillText(run.label.length > 19 ? `${run.label.slice(0, 18)}…` : run.label, area.right + 23, moved[n]);
    });
  };

  const drawLimit = (context) => {
    if (!file.device_memory || file.device_memory > area.ceiling) return;
    context.strokeStyle = css('--alarm');
    context.setLineDash([3, 4]);
    context.strokeRect(area.left, toY(file.device_memory), area.right - area.left, 0);
    context.setLineDash([]);
  };

  const draw = () => {
    const width = surface.clientWidth;
    layout(width);
    const context = prepare(canvas, width, area.height);
    const shown = runs.filter((run) => run.shown);
    drawActive(context);
    drawLevels(context, area);
    if (file.has_times) drawMarks(context, view, area, 1e6, (mark) => String(+mark.toFixed(6)), 'seconds since the first event');
    else drawMarks(context, view, area, 1, grouped, 'events');
    drawSteps(context, view, area, file.steps);
    drawLimit(context);
    shown.forEach((run) => drawRun(context, run));
    shown.forEach((run) => drawPeak(context, run));
    if (area.wide) drawNames(context, shown);
    view.drawCursor(context, area.top, area.bottom);
    const { from, to } = view;
    words.textContent = from === 0 && to === whole ? `All of it: ${place(whole).replace('event ', '')}${file.has_times ? '' : ' events'}`
      : `${place(from)} to ${place(to)}, a part`;
    root.dataset.from = from;
    root.dataset.to = to;
  };

  const stretch = (series, at) => {
    if (!series.count) return '–';
    const n = bucketAt(series, at), low = series.low[n], high = series.high[n];
    return low === high ? size(high) : `${size(low)} – ${size(high)}`;
  };
  const read = (y = null) => {
    const { cursor } = view;
    const step = file.steps.filter((at) => at <= cursor).length;
    const rows = runs.filter((run) => run.shown).map((run) =>
      [run.label, run.kind === 'bound' ? run.sign + size(run.reserved) : stretch(run.values, cursor), run.colour]);
    rows.push(['in use', stretch(active, cursor), '--always']);
    const box = surface.getBoundingClientRect();
    const when = `${place(cursor)}${step ? `, step ${step}` : ''}`;
    showTip([el('b', {}, when), tipTable(rows)], box.left + view.toX(cursor), y ?? box.top + area.height / 2);
    view.soon();
  };

  redrawWith(surface, draw);
  numbersBehind(root, 'The numbers behind this chart', () => ({
    heading: ['from', ...runs.map((run) => run.label), 'in use'],
    rows: Array.from({ length: 100 }, (_, n) => n / 100 * whole).map((start) => {
      const most = (series) => {
        if (!series.count || start > ours(series, series.count * series.width)) return '–';
        const last = bucketAt(series, start + whole / 100);
        let high = 0;
        for (let n = bucketAt(series, start); n <= last; n++) high = Math.max(high, series.high[n]);
        return size(high);
      };
      return [place(start), ...runs.map((run) => most(run.values)), most(active)];
    }),
  }));
};
