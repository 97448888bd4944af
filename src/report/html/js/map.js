// The address map: all memory in a row, cut into lines; every pixel is the mean of what lies under it.

const USED = ['--old', '--older', '--newer', '--new'];
const KINDS = [...USED, '--pending', '--free', '--held', '--idle'];
const KIND_NAMES = ['in use, oldest', 'older', 'newer', 'newest', 'waits for a stream', 'free', 'in use through stitched addresses', 'idle stitched addresses'];

const mapChart = (root, file) => {
  const runs = file.runs.filter((run) => run.peak && run.peak.memory).map((run) =>
    ({ run, memory: decodeMemory(run.peak.memory), stitched: decodeStitched(run.peak.stitched) }));
  if (!runs.length) return void root.append(el('p', { class: 'empty' }, 'No allocator held any memory.'));
  const most = Math.max(1, ...runs.map(({ memory }) => memory.size));
  let chosen = 0, oldest = 1;

  // A hundredth, a tenth, and half of the age of the oldest block part the ages.
  const kindOf = (block) => {
    if (block.state === 1) return 4;
    if (block.state === 2) return 5;
    if (block.state === 3) return block.segment.stitched ? 7 : 6;
    if (block.segment.stitched) return 6;
    const share = block.age / oldest;
    return share > 0.5 ? 0 : share > 0.1 ? 1 : share > 0.01 ? 2 : 3;
  };
  const age = (block) => file.has_times ? nanos(block.age * 1e3) : `${grouped(block.age)} events`;

  const words = el('p', { class: 'words' });
  const swatches = el('div', { class: 'swatches' });
  const pictures = el('div');
  const buttons = runs.map(({ run }) => ({ name: `${run.label}`, variable: run.colour }));
  root.append(choices(buttons, 'Allocator', (n) => { chosen = n; build(); }), words, swatches, pictures,
    el('p', { class: 'hint' }, 'Hover to read a block. With the keyboard: arrows go from block to block.'));

  const ribbon = (memory, perLine, label) => {
    const surface = el('div', { class: 'surface', tabindex: '0', role: 'application', 'aria-label': `${label}. Arrow keys go from block to block.` });
    const canvas = el('canvas');
    surface.append(canvas);
    const state = { at: null };
    const geometry = () => {
      const width = surface.clientWidth, wide = width > 720;
      return { width, line: wide ? 15 : 11, pitch: wide ? 19 : 14, lines: Math.max(1, Math.ceil(memory.size / perLine(width))), bytes: perLine(width) };
    };
    const draw = () => {
      const g = geometry();
      const context = prepare(canvas, g.width, g.lines * g.pitch);
      paint(context, canvas, memory, g);
      if (state.at !== null) outline(context, memory.blocks[state.at], g);
    };
    const read = (n, x, y) => {
      const block = memory.blocks[n], { segment } = block;
      if (state.at !== n) { state.at = n; draw(); }
      const rows = [['size', size(block.size)]];
      if (block.rounding) rows.push(['of it rounding', size(block.rounding)]);
      if (block.state < 2) rows.push(['asked for', `${age(block)} before the peak`]);
      if (!segment.stitched) {
        rows.push(['segment', `${segment.number} of ${memory.segments}, ${size(segment.size)}`]);
        rows.push(['pool', `${segment.pool ? `private ${segment.pool}, ` : ''}${segment.small ? 'small' : 'large'}`], ['stream', String(segment.stream)]);
      }
      const kind = kindOf(block);
      const name = segment.stitched ? (block.state === 3 ? 'idle stitched range' : 'stitched block, in use') : STATES[block.state];
      showTip([el('b', { class: 'swatch', style: `--swatch:var(${KINDS[kind]})` }, name), tipTable(rows)], x, y);
    };
    const find = (offset) => {
      let low = 0, high = memory.blocks.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (memory.blocks[middle].start <= offset) low = middle; else high = middle - 1;
      }
      return low;
    };
    surface.addEventListener('pointermove', (event) => {
      const g = geometry(), box = surface.getBoundingClientRect();
      const line = Math.max(0, Math.min(g.lines - 1, Math.floor((event.clientY - box.top) / g.pitch)));
      const offset = (line + (event.clientX - box.left) / g.width) * g.bytes;
      if (offset < memory.size && memory.blocks.length) read(find(offset), event.clientX, event.clientY); else leave();
    });
    const leave = () => { hideTip(); if (state.at !== null) { state.at = null; draw(); } };
    surface.addEventListener('pointerleave', leave);
    surface.addEventListener('blur', leave);
    surface.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined || !memory.blocks.length) return;
      event.preventDefault();
      const g = geometry(), now = state.at ?? 0, block = memory.blocks[now];
      const down = event.key === 'ArrowDown' ? g.bytes : event.key === 'ArrowUp' ? -g.bytes : 0;
      const target = down ? find(Math.max(0, Math.min(memory.size - 1, block.start + block.size / 2 + down))) : state.at === null ? 0 : now + step;
      const next = Math.max(0, Math.min(memory.blocks.length - 1, target));
      const middle = memory.blocks[next].start / g.bytes, box = surface.getBoundingClientRect();
      read(next, box.left + (middle % 1) * g.width, box.top + Math.floor(middle) * g.pitch);
    });
    return { surface, draw };
  };

  // For each pixel, how many bytes of each kind lie under it; its colour is their mean.
  const paint = (context, canvas, memory, g) => {
    const ratio = canvas.width / g.width, columns = canvas.width, cells = columns * g.lines;
    const weights = new Float32Array(cells * KINDS.length), perCell = g.bytes / columns;
    for (const block of memory.blocks) {
      const kind = kindOf(block), end = block.start + block.size;
      for (let cell = Math.floor(block.start / perCell); cell * perCell < end && cell < cells; cell++) {
        const part = Math.min(end, (cell + 1) * perCell) - Math.max(block.start, cell * perCell);
        weights[cell * KINDS.length + kind] += part;
      }
    }
    const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgb = (name) => {
      probe.fillStyle = css(name);
      probe.fillRect(0, 0, 1, 1);
      return probe.getImageData(0, 0, 1, 1).data;
    };
    const colours = KINDS.map(rgb), page = rgb('--page');
    const image = context.createImageData(columns, canvas.height);
    const thick = Math.round(g.line * ratio), pitch = g.pitch * ratio;
    for (let cell = 0; cell < cells; cell++) {
      const top = Math.round(Math.floor(cell / columns) * pitch), x = cell % columns;
      const mix = [0, 0, 0];
      let sum = 0;
      for (let kind = 0; kind < KINDS.length; kind++) {
        const weight = weights[cell * KINDS.length + kind] / perCell;
        if (!weight) continue;
        sum += weight;
        for (let c = 0; c < 3; c++) mix[c] += weight * colours[kind][c];
      }
      if (!sum) continue;
      for (let c = 0; c < 3; c++) mix[c] += Math.max(0, 1 - sum) * page[c];
      for (let y = top; y < top + thick; y++) image.data.set([...mix, 255], 4 * (y * columns + x));
    }
    context.putImageData(image, 0, 0);
    context.fillStyle = css('--page');
    for (const block of memory.blocks) {
      const { segment } = block;
      if (block.start !== segment.start || segment.size / g.bytes * g.width < 5) continue;
      const at = block.start / g.bytes;
      context.fillRect((at % 1) * g.width - 0.5, Math.floor(at) * g.pitch, 1, g.line);
    }
  };

  const outline = (context, block, g) => {
    context.strokeStyle = css('--ink');
    context.lineWidth = 1.5;
    const first = block.start / g.bytes, last = (block.start + block.size) / g.bytes;
    for (let line = Math.floor(first); line < last; line++) {
      const left = Math.max(0, first - line) * g.width, right = Math.min(1, last - line) * g.width;
      context.strokeRect(left, line * g.pitch + 0.5, Math.max(2, right - left), g.line - 1);
    }
    context.lineWidth = 1;
  };

  const build = () => {
    const { run, memory, stitched } = runs[chosen];
    const lines = (width) => width > 720 ? 26 : 34;
    oldest = [...memory.blocks, ...stitched.blocks].reduce((most, block) => Math.max(most, block.age), 1);
    const main = ribbon(memory, (width) => most / lines(width), `Memory of ${run.label} at its peak`);
    pictures.replaceChildren(main.surface);
    const drawn = [main];
    const kinds = new Set([...memory.blocks, ...stitched.blocks].map(kindOf));
    const count = (n, what) => `${grouped(n)} ${what}${n === 1 ? '' : 's'}`;
    words.textContent = `${run.peak.words} ${count(memory.blocks.length, 'block')} in ${count(memory.segments, 'segment')}.`;
    if (stitched.blocks.length) {
      const scale = Math.max(1, stitched.size / most);
      const second = ribbon(stitched, (width) => most / lines(width) * scale, `Stitched addresses of ${run.label}`);
      const used = stitched.blocks.filter((block) => block.state < 2);
      const text = `Stitched addresses over that memory: ${count(used.length, 'range')} in use (${size(used.reduce((sum, block) => sum + block.size, 0))}), `
        + `${count(stitched.blocks.length - used.length, 'idle one')}; ${size(stitched.size)} of addresses${scale > 1 ? `, drawn ${scale.toFixed(1)} times smaller` : ''}.`;
      pictures.append(el('p', { class: 'words', style: 'margin-top:1.1rem' }, text), second.surface);
      drawn.push(second);
    }
    swatches.replaceChildren(...KINDS.map((variable, n) => [variable, n]).filter(([, n]) => kinds.has(n)).map(([variable, n]) =>
      el('span', { class: 'swatch', style: `--swatch:var(${variable})` }, KIND_NAMES[n])));
    drawn.forEach(({ draw }) => draw());
    current = drawn;
  };
  let current = [];
  build();
  redrawWith(pictures, () => current.forEach(({ draw }) => draw()));

  numbersBehind(root, 'The numbers behind this chart: segments', () => ({
    heading: ['allocator', 'segments', 'blocks in use', 'free blocks', 'largest free block', 'free bytes', 'stitched ranges'],
    rows: runs.map(({ run, memory, stitched }) => {
      const free = memory.blocks.filter((block) => block.state === 2);
      return [run.label, grouped(memory.segments), grouped(memory.blocks.length - free.length), grouped(free.length),
        size(free.reduce((most, block) => Math.max(most, block.size), 0)), size(free.reduce((sum, block) => sum + block.size, 0)), grouped(stitched.blocks.length)];
    }),
  }));
};
