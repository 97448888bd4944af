// The address map: what each allocator held at its peak, as a ribbon.

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
  const tell = (memory) => (block) => {
    const { segment } = block, rows = [['size', size(block.size)]];
    if (block.rounding) rows.push(['of it rounding', size(block.rounding)]);
    if (block.state < 2) rows.push(['asked for', `${age(block)} before the peak`]);
    if (!segment.stitched) {
      rows.push(['segment', `${segment.number} of ${memory.segments}, ${size(segment.size)}`]);
      rows.push(['pool', `${segment.pool ? `private ${segment.pool}, ` : ''}${segment.small ? 'small' : 'large'}`], ['stream', String(segment.stream)]);
    }
    const name = segment.stitched ? (block.state === 3 ? 'idle stitched range' : 'stitched block, in use') : STATES[block.state];
    return { name, colour: KINDS[kindOf(block)], rows };
  };

  const words = el('p', { class: 'words' });
  const swatches = el('div', { class: 'swatches' });
  const pictures = el('div');
  const buttons = runs.map(({ run }) => ({ name: `${run.label}`, variable: run.colour }));
  root.append(choices(buttons, 'Allocator', (n) => { chosen = n; build(); }), words, swatches, pictures,
    el('p', { class: 'hint' }, 'Hover to read a block. With the keyboard: arrows go from block to block.'));

  const picture = (memory, scale, label) => {
    const perLine = (width) => most / linesFor(width) * scale;
    const made = ribbon({ perLine, label, colours: KINDS, kindOf, tell: tell(memory) });
    pictures.append(made.surface);
    made.show(memory);
    return made;
  };
  const build = () => {
    const { run, memory, stitched } = runs[chosen];
    oldest = [...memory.blocks, ...stitched.blocks].reduce((most, block) => Math.max(most, block.age), 1);
    pictures.replaceChildren();
    current = [picture(memory, 1, `Memory of ${run.label} at its peak`)];
    const kinds = new Set([...memory.blocks, ...stitched.blocks].map(kindOf));
    const count = (n, what) => `${grouped(n)} ${what}${n === 1 ? '' : 's'}`;
    words.textContent = `${run.peak.words} ${count(memory.blocks.length, 'block')} in ${count(memory.segments, 'segment')}.`;
    if (stitched.blocks.length) {
      const scale = Math.max(1, stitched.size / most);
      const used = stitched.blocks.filter((block) => block.state < 2);
      const text = `Stitched addresses over that memory: ${count(used.length, 'range')} in use (${size(used.reduce((sum, block) => sum + block.size, 0))}), `
        + `${count(stitched.blocks.length - used.length, 'idle one')}; ${size(stitched.size)} of addresses${scale > 1 ? `, drawn ${scale.toFixed(1)} times smaller` : ''}.`;
      pictures.append(el('p', { class: 'words', style: 'margin-top:1.1rem' }, text));
      current.push(picture(stitched, scale, `Stitched addresses of ${run.label}`));
    }
    swatches.replaceChildren(...KINDS.map((variable, n) => [variable, n]).filter(([, n]) => kinds.has(n)).map(([variable, n]) =>
      el('span', { class: 'swatch', style: `--swatch:var(${variable})` }, KIND_NAMES[n])));
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
