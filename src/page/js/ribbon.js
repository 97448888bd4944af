// A ribbon: memory in the order of its addresses, cut into lines as a text is; every pixel is the mean of what lies
// under it.
//
// `memory` has `blocks`, each with its `start`, `size` and `segment`, and their sum, `size`. `kindOf(block)` is the
// place of its colour in `colours`, `tell(block)` what the tip says.

const ribbon = ({ perLine, label, colours, kindOf, tell, pick = null, isChosen = () => false }) => {
  let memory = { blocks: [], size: 0 }, at = null;
  const surface = el('div', { class: 'surface', tabindex: '0', role: 'application', 'aria-label': `${label}. Arrow keys go from block to block.` });
  const canvas = el('canvas');
  surface.append(canvas);
  const geometry = () => {
    const width = surface.clientWidth, wide = width > 720, bytes = perLine(width);
    return { width, line: wide ? 15 : 11, pitch: wide ? 19 : 14, lines: Math.max(1, Math.ceil(memory.size / bytes)), bytes };
  };
  const draw = () => {
    const g = geometry();
    if (!g.width) return;
    const context = prepare(canvas, g.width, g.lines * g.pitch);
    paintRibbon(context, canvas, memory, g, colours, kindOf);
    for (const block of memory.blocks) if (isChosen(block)) outlineBlock(context, block, g, 2.5);
    if (at !== null) outlineBlock(context, memory.blocks[at], g, 1.5);
  };
  const read = (n, x, y) => {
    if (at !== n) { at = n; draw(); }
    const { name, colour, rows, more = [] } = tell(memory.blocks[n]);
    showTip([el('b', { class: 'swatch', style: `--swatch:var(${colour})` }, name), tipTable(rows), ...more], x, y);
  };
  const find = (offset) => {
    let low = 0, high = memory.blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (memory.blocks[middle].start <= offset) low = middle; else high = middle - 1;
    }
    return low;
  };
  const under = (event) => {
    const g = geometry(), box = surface.getBoundingClientRect();
    const line = Math.max(0, Math.min(g.lines - 1, Math.floor((event.clientY - box.top) / g.pitch)));
    const offset = (line + (event.clientX - box.left) / g.width) * g.bytes;
    return offset < memory.size && memory.blocks.length ? find(offset) : null;
  };
  const leave = () => { hideTip(); if (at !== null) { at = null; draw(); } };
  surface.addEventListener('pointermove', (event) => {
    const n = under(event);
    if (n === null) leave(); else read(n, event.clientX, event.clientY);
  });
  surface.addEventListener('pointerleave', leave);
  surface.addEventListener('blur', leave);
  surface.addEventListener('click', (event) => {
    const n = under(event);
    if (pick && n !== null) pick(memory.blocks[n]);
  });
  surface.addEventListener('keydown', (event) => {
    if (pick && event.key === 'Enter' && at !== null) return void pick(memory.blocks[at]);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 0, ArrowUp: 0, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !memory.blocks.length) return;
    event.preventDefault();
    const g = geometry(), now = at ?? 0, block = memory.blocks[now];
    const down = event.key === 'ArrowDown' ? g.bytes : event.key === 'ArrowUp' ? -g.bytes : 0;
    const target = down ? find(Math.max(0, Math.min(memory.size - 1, block.start + block.size / 2 + down))) : at === null ? 0 : now + step;
    const next = Math.max(0, Math.min(memory.blocks.length - 1, target));
    const middle = memory.blocks[next].start / g.bytes, box = surface.getBoundingClientRect();
    read(next, box.left + (middle % 1) * g.width, box.top + Math.floor(middle) * g.pitch);
  });
  return { surface, draw, show: (next) => { memory = next; at = null; draw(); } };
};

// A colour of the page as red, green and blue.
const rgbOf = (name) => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  probe.fillStyle = css(name);
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data;
};

// Adds up, for each pixel along the lines, the colours of what lies under it by its bytes.
const mixture = (memory, cells, perCell, kindOf, palette) => {
  const mix = new Float32Array(4 * cells);
  for (const block of memory.blocks) {
    const [red, green, blue] = palette[kindOf(block)], end = block.start + block.size;
    const last = Math.min(cells - 1, Math.ceil(end / perCell) - 1);
    for (let cell = Math.floor(block.start / perCell); cell <= last; cell++) {
      const part = (Math.min(end, (cell + 1) * perCell) - Math.max(block.start, cell * perCell)) / perCell;
      mix[4 * cell] += part * red;
      mix[4 * cell + 1] += part * green;
      mix[4 * cell + 2] += part * blue;
      mix[4 * cell + 3] += part;
    }
  }
  return mix;
};

const paintRibbon = (context, canvas, memory, g, colours, kindOf) => {
  const ratio = canvas.width / g.width, columns = canvas.width, cells = columns * g.lines;
  const page = rgbOf('--page'), mix = mixture(memory, cells, g.bytes / columns, kindOf, colours.map(rgbOf));
  const image = context.createImageData(columns, canvas.height), row = new Uint8ClampedArray(4 * columns);
  const thick = Math.round(g.line * ratio), pitch = g.pitch * ratio;
  for (let line = 0; line < g.lines; line++) {
    row.fill(0);
    for (let x = 0; x < columns; x++) {
      const cell = 4 * (line * columns + x), part = mix[cell + 3];
      if (!part) continue;
      for (let c = 0; c < 3; c++) row[4 * x + c] = mix[cell + c] + Math.max(0, 1 - part) * page[c];
      row[4 * x + 3] = 255;
    }
    const top = Math.round(line * pitch);
    for (let y = top; y < top + thick && y < canvas.height; y++) image.data.set(row, 4 * y * columns);
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

const outlineBlock = (context, block, g, width) => {
  context.strokeStyle = css('--ink');
  context.lineWidth = width;
  const first = block.start / g.bytes, last = (block.start + block.size) / g.bytes;
  for (let line = Math.floor(first); line < last; line++) {
    const left = Math.max(0, first - line) * g.width, right = Math.min(1, last - line) * g.width;
    context.strokeRect(left, line * g.pitch + 0.5, Math.max(2, right - left), g.line - 1);
  }
  context.lineWidth = 1;
};

// How many lines the largest memory takes.
const linesFor = (width) => width > 720 ? 26 : 34;
