// Lives: every block from its request to its end, as typed arrays. The other end of lives.rs.
//
// What is live at an event follows from the lives: who was born at it or before, and died after. They are decoded in
// slices, so that the page can be read and scrolled meanwhile.

const NEVER = 0xffffffff;
const SLICE = 1 << 17;
const pause = () => new Promise((resume) => setTimeout(resume));

const inflate = async (text) => {
  const part = 1 << 18;
  let at = 0;
  const source = new ReadableStream({
    pull(controller) {
      if (at >= text.length) return void controller.close();
      controller.enqueue(bytesIn(text.slice(at, at += part)));
    },
  });
  const plain = source.pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(plain).arrayBuffer());
};

// Fills an array, slice by slice.
const fill = async (array, read) => {
  for (let n = 0; n < array.length; n++) {
    array[n] = read(n);
    if (n % SLICE === SLICE - 1) await pause();
  }
  return array;
};

const decodeLives = async (tables, text) => {
  const { next, change } = numbersIn(await inflate(text));
  const ends = (born, span) => span ? born + span - 1 : NEVER;
  const sizes = next(), bytes = new Float64Array(sizes), requested = new Float64Array(sizes);
  for (let n = 0; n < sizes; n++) { bytes[n] = next(); requested[n] = bytes[n] - next(); }
  let last = 0;
  const places = await fill(new Float64Array(next()), () => last += change());
  const count = next();
  last = 0;
  const born = await fill(new Uint32Array(count), () => last += change());
  const died = await fill(new Uint32Array(count), (n) => ends(born[n], next()));
  const origin = await fill(new Uint32Array(count), next);
  const sizeOf = await fill(new Uint32Array(count), next);
  const placeOf = await fill(new Uint32Array(count), next);
  const letGo = new Map();
  for (let left = next(), block = 0; left > 0; left--) {
    block += next();
    letGo.set(block, born[block] + next());
  }
  const segments = [];
  for (let left = next(), from = 0, at = 0; left > 0; left--) {
    from += change();
    const died = ends(from, next());
    at += change();
    segments.push({ born: from, died, at, size: next(), stream: next(), pool: next() });
  }
  const times = [];
  for (let left = next(), event = 0, time = 0; left > 0; left--) times.push([event += next(), time += change()]);
  const columns = { count, bytes, requested, places, born, died, origin, sizeOf, placeOf, letGo, segments, times };
  const lives = { ...tables, ...columns };
  return Object.assign(lives, { changes: await changesOf(lives), held: heldOf(segments) });
};

// The block that each event gave out, as its number plus one, or took back, as the negative of that; else 0.
const changesOf = async ({ events, count, born, died }) => {
  const changes = new Int32Array(events);
  for (let n = 0; n < count; n++) {
    changes[born[n]] = n + 1;
    if (died[n] !== NEVER) changes[died[n]] = -n - 1;
    if (n % SLICE === SLICE - 1) await pause();
  }
  return changes;
};

// What was held, from event to event: where it changes, and to what.
const heldOf = (segments) => {
  const by = new Map();
  const add = (at, bytes) => by.set(at, (by.get(at) || 0) + bytes);
  for (const { born, died, size } of segments) {
    add(born, size);
    if (died !== NEVER) add(died, -size);
  }
  const at = [...by.keys()].sort((a, b) => a - b);
  let sum = 0;
  const bytes = at.map((event) => sum += by.get(event));
  return { at, bytes, most: bytes.reduce((a, b) => Math.max(a, b), 0) };
};

// How many of ascending numbers are at most `value`.
const upTo = (numbers, value) => {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
};

const heldAt = ({ held }, event) => held.bytes[upTo(held.at, event) - 1] || 0;

// Blocks that are live after an event, in the order of their addresses.
const liveAt = (lives, event) => {
  const { born, died, placeOf } = lives, found = [];
  for (let n = 0, end = upTo(born, event); n < end; n++) if (died[n] > event) found.push(n);
  return found.sort((a, b) => placeOf[a] - placeOf[b]);
};

const stackOf = (lives, block) => lives.stacks[lives.origins[lives.origin[block]][0]];
const framesOf = (lives, block) => stackOf(lives, block)[0].map((frame) => lives.frames[frame]);
const lineOf = (lives, block) => {
  const [frames, named] = stackOf(lives, block);
  return lives.frames[frames[named]];
};
const categoryOf = (lives, block) => lives.categories[lives.origins[lives.origin[block]][1]];
const sizeOfBlock = (lives, block) => lives.bytes[lives.sizeOf[block]];
const stepAt = (lives, event) => upTo(lives.steps, event);

// The time of an event in microseconds, on the line between the two that are known; null without times.
const timeAt = ({ times }, event) => {
  if (!times.length) return null;
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle][0] < event) low = middle + 1; else high = middle;
  }
  const [[from, start], [to, end]] = [times[Math.max(low - 1, 0)], times[low]];
  return to > from ? start + (end - start) * Math.min((event - from) / (to - from), 1) : end;
};
const momentWords = (lives, event) => {
  const step = stepAt(lives, event), time = timeAt(lives, event);
  return `event ${grouped(event)}${step ? `, step ${step}` : ''}${time === null ? '' : `, about ${nanos(time * 1e3)}`}`;
};
