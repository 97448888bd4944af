// The other end of encode.rs: numbers of seven bits a byte, in base64.

const bytesIn = (text) => {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let n = 0; n < letters.length; n++) bytes[n] = letters.charCodeAt(n);
  return bytes;
};

const numbersIn = (bytes) => {
  let at = 0;
  const next = () => {
    let byte = bytes[at++], value = byte & 127;
    for (let factor = 128; byte > 127; factor *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * factor;
    }
    return value;
  };
  // The lowest bit says whether it is negative.
  const change = () => {
    const value = next();
    return value % 2 ? -(value - 1) / 2 : value / 2;
  };
  return { next, change, more: () => at < bytes.length };
};
const reader = (text) => numbersIn(bytesIn(text));

// Lowest and highest value of each bucket.
const decodeSeries = ({ width, end, count, data }) => {
  const low = new Float64Array(count), high = new Float64Array(count);
  const numbers = reader(data);
  let index = 0, from = 0, to = 0;
  while (numbers.more()) {
    const repeats = numbers.next(), change = numbers.change(), spread = numbers.next();
    low.fill(from, index, index + repeats);
    high.fill(to, index, index + repeats);
    index += repeats;
    from += change;
    to = from + spread;
    low[index] = from;
    high[index++] = to;
  }
  low.fill(from, index);
  high.fill(to, index);
  return { width, end, count, low, high };
};

const STATES = ['in use', 'waits for a stream', 'free', 'in use through stitched addresses'];

const decodeBlock = (numbers) => {
  const state = numbers.next(), size = numbers.next();
  const live = state < 2;
  return { state, size, rounding: live ? numbers.next() : 0, age: live ? numbers.next() : 0 };
};

// Blocks with the place where each begins if all stand in a row, and the segment that each is part of.
const decodeMemory = (text) => {
  const numbers = reader(text), blocks = [];
  let start = 0, count = 0;
  while (numbers.more()) {
    const left = numbers.next(), pool = numbers.next(), stream = numbers.next();
    const segment = { number: ++count, start, size: 0, pool: pool >> 1, small: pool % 2 === 1, stream };
    for (let n = 0; n < left; n++) {
      const block = decodeBlock(numbers);
      blocks.push(Object.assign(block, { start, segment }));
      start += block.size;
      segment.size += block.size;
    }
  }
  return { blocks, size: start, segments: count };
};

const decodeStitched = (text) => {
  const numbers = reader(text), blocks = [];
  let start = 0;
  while (numbers.more()) {
    const block = decodeBlock(numbers);
    const segment = { number: blocks.length + 1, start, size: block.size, stitched: true };
    blocks.push(Object.assign(block, { start, segment }));
    start += block.size;
  }
  return { blocks, size: start, segments: blocks.length };
};
