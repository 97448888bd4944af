// Groups: the blocks by category, line or another kind of name, and how many bytes of each group are live at each event.
//
// A pass over all events fills buckets, some thousand of them: the bytes of each group at the moment of the bucket at
// which most was live, and at its end. A part that is smaller than the buckets are fine is walked event by event, from
// the end of the bucket before it.

const MOST_GROUPS = 12;
const BUCKETS = 32768;

const PARTS = /^(.*):(\d+) (.*)$/;
const moduleOf = (file) => file.replace(/\.py$/, '').replace(/\/__init__$/, '').replace(/^\//, '').replaceAll('/', '.');
const KINDS_OF_NAMES = [
  { name: 'category', of: categoryOf },
  { name: 'line', of: lineOf, stacks: true },
  { name: 'function', of: (lives, n) => lineOf(lives, n).replace(PARTS, '$1 $3'), stacks: true },
  { name: 'module', of: (lives, n) => lineOf(lives, n).replace(PARTS, (_, file) => moduleOf(file)), stacks: true },
  { name: 'size', of: (lives, n) => size(lives.bytes[lives.sizeOf[n]]), bySize: true },
  { name: 'stream', of: (lives, n) => `stream ${lives.origins[lives.origin[n]][2]}` },
  { name: 'single blocks', single: true, of: categoryOf },
];

// The name of each block as a number: names hang on the origin, or on the size.
const named = (lives, kind) => {
  const names = new Map(), keys = kind.bySize ? lives.sizeOf : lives.origin;
  const known = new Int32Array(kind.bySize ? lives.bytes.length : lives.origins.length).fill(-1);
  const number = new Uint32Array(lives.count);
  for (let n = 0; n < lives.count; n++) {
    const key = keys[n];
    if (known[key] < 0) {
      const name = kind.of(lives, n);
      if (!names.has(name)) names.set(name, names.size);
      known[key] = names.get(name);
    }
    number[n] = known[key];
  }
  return { names: [...names.keys()], number };
};

// The largest names, those that come and go least first, each with its highest bytes; all others are one.
const ranked = (lives, { names, number }, mask) => {
  const { events, changes, bytes, sizeOf } = lives;
  const now = new Float64Array(names.length), most = new Float64Array(names.length), asked = new Float64Array(names.length);
  for (let event = 0; event < events; event++) {
    const change = changes[event];
    if (!change) continue;
    const n = Math.abs(change) - 1;
    if (mask && !mask[n]) continue;
    const name = number[n], size = bytes[sizeOf[n]];
    if (change > 0) {
      now[name] += size;
      if (now[name] > most[name]) most[name] = now[name];
      asked[name] += size;
    } else now[name] -= size;
  }
  const order = names.map((_, n) => n).filter((n) => most[n] > 0).sort((a, b) => most[b] - most[a]);
  const fits = order.length <= MOST_GROUPS ? order : order.slice(0, MOST_GROUPS - 1);
  fits.sort((a, b) => asked[a] / most[a] - asked[b] / most[b]);
  const place = new Uint8Array(names.length).fill(fits.length);
  fits.forEach((name, n) => { place[name] = n; });
  const groups = fits.map((name) => ({ name: names[name], most: most[name] }));
  if (order.length > fits.length) groups.push({ name: `${grouped(order.length - fits.length)} others`, most: null });
  return { groups, place };
};

const grouping = (lives, kind, mask = null) => {
  const all = named(lives, kind);
  const { groups, place } = ranked(lives, all, mask);
  const group = new Uint8Array(lives.count);
  for (let n = 0; n < lives.count; n++) group[n] = mask && !mask[n] ? 255 : place[all.number[n]];
  // Categories have the same colour in every chart.
  groups.forEach((one, n) => {
    const fixed = kind.of === categoryOf ? lives.categories.indexOf(one.name) : -1;
    one.colour = `--band-${fixed >= 0 ? fixed : n}`;
  });
  return { kind, groups, group, ...buckets(lives, group, groups.length) };
};

// Walks the events of [from, to): `each` gets the event, the bytes of each group after it, and their sum.
const walk = (lives, group, now, from, to, each) => {
  const { changes, bytes, sizeOf } = lives;
  let total = now.reduce((a, b) => a + b, 0);
  for (let event = from; event < to; event++) {
    const change = changes[event];
    if (change) {
      const n = change > 0 ? change - 1 : -change - 1, of = group[n];
      if (of !== 255) {
        const by = change > 0 ? bytes[sizeOf[n]] : -bytes[sizeOf[n]];
        now[of] += by;
        total += by;
      }
    }
    each(event, now, total);
  }
};

const buckets = (lives, group, count) => {
  const width = Math.max(1, Math.ceil(lives.events / BUCKETS)), length = Math.ceil(lives.events / width);
  const most = new Float64Array(length * count), ends = new Float64Array(length * count);
  const sums = new Float64Array(length).fill(-1), moments = new Uint32Array(length);
  const now = new Float64Array(count);
  let peak = { event: 0, bytes: 0 };
  for (let bucket = 0; bucket < length; bucket++) {
    const from = bucket * width, to = Math.min(lives.events, from + width);
    walk(lives, group, now, from, to, (event, now, total) => {
      if (total <= sums[bucket]) return;
      sums[bucket] = total;
      moments[bucket] = event;
      most.set(now, bucket * count);
    });
    ends.set(now, bucket * count);
    if (sums[bucket] > peak.bytes) peak = { event: moments[bucket], bytes: sums[bucket] };
  }
  return { width, length, most, ends, sums, moments, peak };
};

// The bytes of each group for each of so many columns of a part, at the moment of the column at which most was live.
const columnsOf = (lives, grouping, from, to, columns) => {
  const { groups, group, width, length, most, ends, sums, moments } = grouping, count = groups.length;
  const bytes = new Float64Array(columns * count), at = new Uint32Array(columns), high = new Float64Array(columns).fill(-1);
  const perColumn = (to - from) / columns;
  const columnOf = (event) => Math.floor((event - from) / perColumn);
  if (perColumn >= width) {
    for (let bucket = Math.floor(from / width); bucket < length && bucket * width < to; bucket++) {
      const column = Math.max(0, Math.min(columns - 1, columnOf(moments[bucket])));
      if (sums[bucket] <= high[column]) continue;
      high[column] = sums[bucket];
      at[column] = moments[bucket];
      bytes.set(most.subarray(bucket * count, (bucket + 1) * count), column * count);
    }
  } else {
    const bucket = Math.floor(from / width);
    const now = bucket ? ends.slice((bucket - 1) * count, bucket * count) : new Float64Array(count);
    walk(lives, group, now, bucket * width, Math.min(lives.events, Math.ceil(to)), (event, now, total) => {
      const first = Math.max(0, columnOf(event)), last = Math.min(columns - 1, Math.max(first, columnOf(event + 1) - 1));
      if (event + 1 <= from) return;
      for (let column = first; column <= last; column++) {
        if (total <= high[column]) continue;
        high[column] = total;
        at[column] = event;
        bytes.set(now, column * count);
      }
    });
  }
  // A column in which nothing begins is as the one before it.
  for (let column = 1; column < columns; column++) {
    if (high[column] >= 0) continue;
    high[column] = high[column - 1];
    at[column] = at[column - 1];
    bytes.copyWithin(column * count, (column - 1) * count, column * count);
  }
  return { bytes, at, high, count };
};

// Of the largest blocks that are live somewhere in a part, those that take most of the picture, in the order of their
// requests. Where few begin in the part, all are looked at.
const LOOKED_AT = 20000;
const largestIn = (lives, mask, from, to, most) => {
  const { born, died } = lives, found = [], end = upTo(born, to), isFew = end - upTo(born, from) < LOOKED_AT;
  if (!isFew) lives.order ??= bySize(lives);
  for (let place = 0, last = isFew ? end : lives.count; place < last; place++) {
    const n = isFew ? place : lives.order[place];
    if (born[n] < to && died[n] > from && (!mask || mask[n])) found.push(n);
    if (!isFew && found.length === LOOKED_AT) break;
  }
  const area = (n) => sizeOfBlock(lives, n) * (Math.min(died[n], to) - Math.max(born[n], from));
  return found.sort((a, b) => area(b) - area(a)).slice(0, most).sort((a, b) => a - b);
};

// All blocks, the largest first.
const bySize = (lives) => {
  const rank = Array.from(lives.bytes.keys()).sort((a, b) => lives.bytes[b] - lives.bytes[a]);
  const place = new Uint32Array(rank.length + 1), of = new Uint32Array(rank.length);
  rank.forEach((size, n) => { of[size] = n; });
  for (let n = 0; n < lives.count; n++) place[of[lives.sizeOf[n]] + 1]++;
  for (let n = 1; n < place.length; n++) place[n] += place[n - 1];
  const order = new Uint32Array(lives.count);
  for (let n = 0; n < lives.count; n++) order[place[of[lives.sizeOf[n]]]++] = n;
  return order;
};
