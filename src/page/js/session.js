// A session: what the reader of one file has chosen, shared by its charts.
//
//   at        the event whose state is shown        selected  a block, or null
//   kind      by which names blocks are grouped     mask      the blocks that match the filter; null: all
//
// Without call stacks nothing says what a block is for; blocks are grouped by size first.
//
// `change` sets some of these and tells every chart that listens.

const newSession = (lives) => {
  const kinds = KINDS_OF_NAMES.filter((kind) =>
    (lives.has_stacks || !kind.stacks) && (kind.name !== 'stream' || new Set(lives.origins.map((origin) => origin[2])).size > 1));
  const listeners = [];
  const session = { at: 0, selected: null, mask: null, kinds, kind: kinds.find((kind) => kind.name === (lives.has_stacks ? 'category' : 'size')) };
  session.regroup = () => { session.grouping = grouping(lives, session.kind, session.mask); };
  session.listen = (listener) => listeners.push(listener);
  session.change = (values) => {
    const before = { ...session };
    Object.assign(session, values);
    if (session.kind !== before.kind || session.mask !== before.mask) session.regroup();
    listeners.forEach((listener) => listener(before));
  };
  session.go = (event) => session.change({ at: Math.max(0, Math.min(lives.events - 1, Math.round(event))) });
  session.regroup();
  session.at = session.grouping.peak.event;
  return session;
};

// What a tip says of a block.
const blockRows = (lives, n) => {
  const { born, died } = lives, bytes = sizeOfBlock(lives, n), requested = lives.requested[lives.sizeOf[n]];
  const rows = [['size', size(bytes)]];
  if (requested !== bytes) rows.push(['asked for', size(requested)]);
  rows.push(['category', categoryOf(lives, n)], ['from', momentWords(lives, born[n])],
    ['until', died[n] === NEVER ? 'the end' : momentWords(lives, died[n])]);
  return rows;
};
const stackLines = (lives, n, most = Infinity) => {
  const [, at] = stackOf(lives, n), frames = framesOf(lives, n);
  const shown = frames.slice(0, most).map((frame, place) => el('li', place === at && frames.length > 1 ? { class: 'asker' } : {}, frame));
  if (frames.length > most) shown.push(el('li', { class: 'rest' }, `${frames.length - most} more`));
  return el('ol', { class: 'frames' }, ...shown);
};
