// Memory over time: zoom by dragging, by buttons, by keys or with Ctrl and the wheel; hover or arrow keys to read.

const timelineChart = (root, file) => {
  const active = decodeSeries(file.active);
  const runs = file.runs.map((run) => Object.assign({ values: decodeSeries(run.series) }, run));
  for (const run of runs) run.shown = run.kind === 'recorded' || run.kind === 'choice';
  const lowest = runs.filter((run) => run.kind === 'bound').sort((a, b) => a.reserved - b.reserved)[0];
  if (lowest) lowest.shown = true;
  const whole = Math.max(1, file.end);
  let from = 0, to = whole, cursor = null, drag = null, frame = null;

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
  const window_ = el('output', {});
  const tool = (text, label, onclick) => el('button', { type: 'button', 'aria-label': label, onclick }, text);
  const tools = el('div', { class: 'tools' }, window_,
    tool('−', 'Zoom out', () => zoom(2)), tool('+', 'Zoom in', () => zoom(0.5)),
    tool('Peak', 'Zoom to the peak', () => toPeak()), tool('All', 'Show all', () => show(0, whole)));
  const hint = el('p', { class: 'hint' },
    'Drag to zoom, double-click to see all. With the keyboard: arrows, + and −, 0 for all, P for the peak.');
  root.append(legend, surface, tools, hint);

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

  let area = { left: 0, right: 0, top: 0, bottom: 0, ceiling: 1 };
  const toX = (at) => area.left + (at - from) / (to - from) * (area.right - area.left);
  const toAt = (x) => from + (x - area.left) / (area.right - area.left) * (to - from);
  const toY = (bytes) => area.bottom - bytes / area.ceiling * (area.bottom - area.top);

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
      const start = toAt(x);
      if (start > ended && start > from) return;
      let low = Infinity, high = -Infinity;
      for (let n = bucketAt(series, start), last = bucketAt(series, toAt(x + 1)); n <= last; n++) {
        low = Math.min(low, series.low[n]);
        high = Math.max(high, series.high[n]);
      }
      each(x, low, high);
    }
  };

  const drawAxes = (context) => {
    const [unit, name] = UNITS.find(([unit]) => area.ceiling >= 2 * unit) || [1, 'B'];
    const levels = ticks(0, area.ceiling / unit, area.wide ? 8 : 5);
    context.strokeStyle = css('--line');
    context.fillStyle = css('--soft');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const level of levels.all) {
      const y = Math.round(toY(level * unit)) + 0.5;
      context.beginPath();
      context.moveTo(area.left, y);
      context.lineTo(area.right, y);
      context.stroke();
      context.fillText(String(+level.toFixed(6)), area.left - 8, y);
    }
    context.textAlign = 'left';
    context.fillText(name, 0, 9);
    const scale = file.has_times ? 1e6 : 1;
    const marks = ticks(from / scale, to / scale, area.wide ? 10 : 5);
    context.textAlign = 'center';
    for (const mark of marks.all) {
      const text = file.has_times ? String(+mark.toFixed(6)) : grouped(mark);
      context.fillText(text, toX(mark * scale), area.bottom + 14);
    }
    context.fillText(file.has_times ? 'seconds since the first event' : 'events', (area.left + area.right) / 2, area.bottom + 33);
  };

  const drawSteps = (context) => {
    const inside = file.steps.map((at, n) => [at, n + 1]).filter(([at]) => at >= from && at <= to);
    if (inside.length > 150) return;
    let last = -Infinity;
    context.strokeStyle = css('--line');
    context.fillStyle = css('--faint');
    context.textAlign = 'center';
    for (const [at, number] of inside) {
      const x = Math.round(toX(at)) + 0.5;
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(x, area.top);
      context.lineTo(x, area.bottom);
      context.stroke();
      context.setLineDash([]);
      const text = last === -Infinity ? `step ${number}` : String(number);
      const half = context.measureText(text).width / 2;
      const middle = Math.max(x, area.left + half);
      if (middle - half > last + 8) {
        context.fillText(text, middle, area.top - 11);
        last = middle + half;
      }
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
      if (last !== null && to >= whole) context.lineTo(area.right, toY(last));
    }
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
    run.end = run.kind === 'bound' ? run.reserved : last === null ? run.reserved : last;
  };

  const drawMarks = (context, run) => {
    const peak = ours(run.values, run.peak_at);
    if (run.kind !== 'bound' && peak >= from && peak <= to) {
      context.fillStyle = css('--page');
      context.strokeStyle = css(run.colour);
      context.lineWidth = 2;
      context.beginPath();
      context.arc(Math.max(area.left, Math.min(area.right, toX(peak))), toY(run.reserved), 4, 0, 7);
      context.fill();
      context.stroke();
    }
    if (run.first_oom !== null && run.first_oom >= from && run.first_oom <= to) {
      const at = bucketAt(run.values, run.first_oom), x = toX(run.first_oom), y = toY(run.values.high[at] || 0);
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

  const draw = () => {
    const width = surface.clientWidth;
    layout(width);
    const context = prepare(canvas, width, area.height);
    const shown = runs.filter((run) => run.shown);
    drawActive(context);
    drawAxes(context);
    drawSteps(context);
    if (file.device_memory && file.device_memory <= area.ceiling) {
      context.strokeStyle = css('--alarm');
      context.setLineDash([3, 4]);
      context.strokeRect(area.left, toY(file.device_memory), area.right - area.left, 0);
      context.setLineDash([]);
    }
    shown.forEach((run) => drawRun(context, run));
    shown.forEach((run) => drawMarks(context, run));
    if (area.wide) drawNames(context, shown);
    drawCursor(context);
    window_.textContent = from === 0 && to === whole ? `All of it: ${place(whole).replace('event ', '')}${file.has_times ? '' : ' events'}`
      : `${place(from)} to ${place(to)}, a part`;
    root.dataset.from = from;
    root.dataset.to = to;
  };

  const drawCursor = (context) => {
    if (drag !== null && cursor !== null) {
      context.fillStyle = css('--focus');
      context.globalAlpha = 0.14;
      const [a, b] = [toX(drag), toX(cursor)].sort((x, y) => x - y);
      context.fillRect(a, area.top, b - a, area.bottom - area.top);
      context.globalAlpha = 1;
    }
    if (cursor === null) return;
    const x = Math.round(toX(cursor)) + 0.5;
    context.strokeStyle = css('--soft');
    context.beginPath();
    context.moveTo(x, area.top);
    context.lineTo(x, area.bottom);
    context.stroke();
  };

  const soon = () => { frame ??= requestAnimationFrame(() => { frame = null; draw(); }); };
  const show = (start, end) => {
    const least = whole / 2000, length = Math.max(least, Math.min(whole, end - start));
    from = Math.max(0, Math.min(whole - length, start));
    to = from + length;
    soon();
  };
  const zoom = (factor, around = cursor === null ? (from + to) / 2 : cursor) =>
    show(around - (around - from) * factor, around + (to - around) * factor);
  const toPeak = () => {
    const run = runs.find((run) => run.shown && run.kind !== 'bound') || runs[0];
    if (!run) return;
    const at = ours(run.values, run.peak_at), half = whole / 20;
    cursor = at;
    show(at - half, at + half);
    read();
  };

  const stretch = (series, at) => {
    if (!series.count) return '–';
    const n = bucketAt(series, at), low = series.low[n], high = series.high[n];
    return low === high ? size(high) : `${size(low)} – ${size(high)}`;
  };
  const read = (y = null) => {
    const step = file.steps.filter((at) => at <= cursor).length;
    const rows = runs.filter((run) => run.shown).map((run) =>
      [run.label, run.kind === 'bound' ? size(run.reserved) : stretch(run.values, cursor), run.colour]);
    rows.push(['in use', stretch(active, cursor), '--always']);
    const box = surface.getBoundingClientRect();
    const when = `${place(cursor)}${step ? `, step ${step}` : ''}`;
    showTip([el('b', {}, when), tipTable(rows)], box.left + toX(cursor), y ?? box.top + area.height / 2);
    soon();
  };

  const placeOf = (event) => {
    const x = event.clientX - surface.getBoundingClientRect().left;
    return Math.max(from, Math.min(to, toAt(x)));
  };
  surface.addEventListener('pointermove', (event) => { cursor = placeOf(event); read(event.clientY); });
  surface.addEventListener('pointerleave', () => { if (drag === null) { cursor = null; hideTip(); soon(); } });
  surface.addEventListener('pointerdown', (event) => {
    if (event.pointerType === 'touch' || event.button !== 0) return;
    drag = placeOf(event);
    surface.setPointerCapture(event.pointerId);
  });
  surface.addEventListener('pointerup', (event) => {
    if (drag === null) return;
    const [start, end] = [drag, placeOf(event)].sort((a, b) => a - b);
    drag = null;
    if (toX(end) - toX(start) > 6) show(start, end); else soon();
  });
  surface.addEventListener('pointercancel', () => { drag = null; soon(); });
  surface.addEventListener('dblclick', () => show(0, whole));
  surface.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, placeOf(event));
  }, { passive: false });
  surface.addEventListener('blur', () => { cursor = null; hideTip(); soon(); });
  surface.addEventListener('keydown', (event) => {
    const pixel = (to - from) / (area.right - area.left), by = pixel * (event.shiftKey ? 60 : 6);
    const move = (at) => {
      cursor = Math.max(0, Math.min(whole, at));
      if (cursor < from || cursor > to) show(cursor - (to - from) / 2, cursor + (to - from) / 2);
      read();
    };
    const now = cursor ?? from;
    const act = {
      ArrowLeft: () => move(now - by), ArrowRight: () => move(now + by), Home: () => move(0), End: () => move(whole),
      '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), 0: () => show(0, whole), p: toPeak, P: toPeak,
      Escape: () => { cursor = null; hideTip(); soon(); },
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

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
