// The flow picture: tokens along x, blocks upward, an arrow wherever information moves from one position to another.
const BLOCK = 78, TALL = 112, GUTTER = 52, TOKEN = 20;

// Where a place (`key`, `key+3`, `pos:7`) stands in the example document; null where nobody knows.
function positionOf(place, tokens) {
  const at = (role) => tokens.findIndex(([, roles]) => roles.includes(role));
  if (place.startsWith("pos:")) return Number(place.slice(4));
  if (at(place) >= 0) return at(place);
  const offset = /^(.+?)([+-]\d+)$/.exec(place);
  return offset && at(offset[1]) >= 0 ? at(offset[1]) + Number(offset[2]) : null;
}

// Columns of the picture: { text, role, places }, a gap where tokens that no route touches are left out.
function columnsOf(places, task, layout, most) {
  if (!task.example) {
    return distinct([...layout.roles, ...places]).map((place) => ({ text: "", role: place, places: [place] }));
  }
  const tokens = task.example.tokens.slice(0, task.example.asked_at + 1);
  const touched = new Map();
  for (const place of places) touched.set(positionOf(place, tokens), [...(touched.get(positionOf(place, tokens)) ?? []), place]);
  const all = tokens.map(([text, roles], i) => ({ text, role: roles.find((r) => layout.roles.includes(r)) ?? "", places: [...roles, ...(touched.get(i) ?? [])] }));
  if (all.length <= most) return all;
  const columns = [];
  for (const column of all) {
    if (column.role || column.places.length) columns.push(column);
    else if (columns.at(-1)?.gap !== true) columns.push({ text: "⋯", role: "", places: [], gap: true });
  }
  return columns;
}

// Labels below the tokens, each in the first line in which it does not touch another.
function staggered(labels) {
  const ends = [];
  return labels.map(({ x, text }) => {
    const half = wide(text) / 2 + 3;
    let line = 0;
    while (ends[line] !== undefined && x - half < ends[line]) line += 1;
    ends[line] = x + half;
    return { x, text, line };
  });
}

kinds.flow = (holder, width) => {
  const number = Number(holder.dataset.model);
  const { lanes, grids } = page.details.models[number];
  const layout = page.details.layouts[number];
  const task = page.overview.tasks[page.overview.models[number].task];
  const places = distinct(lanes.flatMap((lane) => lane.steps.map(([, place]) => place)));
  const columns = columnsOf(places, task, layout, Math.floor((width - GUTTER) / 24));
  const step = Math.min(64, (width - GUTTER - 14) / columns.length);
  const x = (place) => GUTTER + step * (columns.findIndex((c) => c.places.includes(place)) + 0.5);
  const labels = staggered(columns.map((c, i) => ({ x: GUTTER + step * (i + 0.5), text: c.role })).filter((l) => l.text));
  const lines = 1 + Math.max(0, ...labels.map((l) => l.line));
  // A block inside which information stops on its way is taller: its arrows and their names need the room.
  const tall = lanes.flatMap((lane) => lane.steps).filter(([level]) => level % 1).map(([level]) => Math.floor(level));
  const heights = Array.from({ length: layout.blocks }, (_, b) => (tall.includes(b) ? TALL : BLOCK));
  const risen = (level) => heights.reduce((sum, height, b) => sum + height * Math.max(0, Math.min(1, level - b)), 0);
  const top = 34, floor = top + risen(layout.blocks);
  const y = (level) => floor - risen(level);
  const tokensAt = floor + 14;
  const height = tokensAt + TOKEN + 6 + lines * 13;
  const svg = canvas(width, height, describeFlow(number, lanes, layout));
  svg.classList.toggle("tall", tall.length > 0);

  for (let b = 0; b < layout.blocks; b += 1) {
    svg.append(node("rect", { class: "band", x: GUTTER - 4, y: y(b + 1) + 9, width: width - GUTTER - 6, height: heights[b] - 18, rx: 8 }),
      words(0, y(b + 0.5) + 4, `block ${b}`, { class: "soft-text" }));
  }
  svg.append(...dots(columns, layout, grids, x, y));
  const drawn = lanes.map((lane, k) => laneMarks(lane, k, lanes, x, y, width));
  svg.append(...drawn.flatMap((d) => d.marks), ...drawn.flatMap((d) => d.labels), ...partNames(drawn, y, width));
  svg.append(...tokenMarks(columns, step, tokensAt, page.overview.tasks.flatMap((t) => t.roles)),
    ...labels.map((l) => words(l.x, tokensAt + TOKEN + 14 + 13 * l.line, l.text, { "text-anchor": "middle", class: "soft-text" })));
  if (task.example) {
    const at = Math.min(x(layout.read[0]), width - wide(`answer ${task.example.answer}`) / 2 - 4);
    svg.append(words(at, 12, `answer ${task.example.answer}`, { "text-anchor": "middle", class: "strong-text" }));
  }
  return { svg, rows: flowRows(lanes), keys: flowKeys(lanes) };
};

const STATES = { proven: "passed", failed: "failed a test", untested: "not tested" };

// What restoring a place between the blocks brings back, as a dot; places that nobody restored are small.
function dots(columns, layout, grids, x, y) {
  const slot = Object.keys(grids)[0];
  const frame = slot && page.details.frames[grids[slot].frame];
  const found = [];
  layout.boundaries.forEach((site, level) => {
    for (const column of columns) {
      if (column.gap) continue;
      const at = frame ? frame.sites.indexOf(site) * frame.roles.length + frame.roles.indexOf(column.role) : -1;
      const known = frame && frame.sites.includes(site) && frame.roles.includes(column.role) && grids[slot].share[at] !== null;
      const share = known ? grids[slot].share[at] / 10000 : null;
      const ends = known ? [share, grids[slot].low[at] / 10000, grids[slot].high[at] / 10000, grids[slot].n] : null;
      const where = level ? `after block ${level - 1}` : "input";
      const tip = known ? `${column.role}, ${where}: share of the ${slot}'s effect that restoring it brings back\n${estimated(ends, format.number)}` : null;
      const centre = { cx: x(column.places[0]), cy: y(level) };
      found.push(node("circle", { ...centre, r: 1.6 + 3.4 * Math.max(0, Math.min(1, share ?? 0)), class: share > 0.05 ? "dot held" : "dot", "data-tip": tip }));
    }
  });
  return found;
}

function laneMarks(lane, k, lanes, x, y, width) {
  const slots = distinct(lanes.map((l) => l.slot));
  const shift = (k - (lanes.length - 1) / 2) * 5;
  const marks = [], labels = [], parts = [], boxes = [], points = [];
  lane.steps.slice(1).forEach(([level, place, by, own], i) => {
    const [from, source] = lane.steps[i];
    const [x0, x1, y0, y1] = [x(source) + shift, x(place) + shift, y(from), y(level)];
    if (!Number.isFinite(x0 + x1)) return;
    const share = own ?? lane.share;
    const moved = place !== source;
    const end = y1 + (moved ? 7 : 0);
    const middle = (y0 + end) / 2;
    const tip = `${lane.slot}: ${source} → ${place}${by ? `, ${by}` : ""}\n${own === null ? "" : `this move: ${format.percent(own)} of documents; `}the route: ${format.percent(lane.share)} [${lane.interval.map(format.percent).join(", ")}], n = ${lane.n}, ${STATES[lane.state]}`;
    const path = moved ? `M${x0},${y0}C${x0},${middle} ${x1},${middle} ${x1},${end}` : `M${x0},${y0}V${end}`;
    const style = `lane ${colourClass(slots.indexOf(lane.slot))} ${lane.state}`;
    marks.push(node("path", { d: path, class: style, "stroke-width": 1 + 4.5 * share, "data-tip": tip }));
    if (moved) marks.push(node("path", { d: `M${x1},${y1 - 2}l7,11h-14Z`, class: `arrow ${colourClass(slots.indexOf(lane.slot))}`, "data-tip": tip }));
    if (level % 1) {
      labels.push(words(x1 - 9, y1 - 1, place, { class: "lane-text strong-text", "text-anchor": "end" }));
      boxes.push([x1 - 9 - wide(place, 11, 650), x1 - 9, y1 - 1]);
    }
    const curve = Array.from({ length: 51 }, (_, n) => {
      const t = n / 50, late = moved ? t * t * (3 - 2 * t) : 0;
      return [x0 + (x1 - x0) * late, y0 + (end - y0) * (moved ? 1.5 * t * (1 - t) + t ** 3 : t)];
    });
    points.push(...curve);
    if (by) parts.push({ by, level, curve });
  });
  return { marks, labels, parts, boxes, points };
}

// What moves information, by name: in its block, as near to the middle of its own arrow as no arrow and no name is in the way.
function partNames(drawn, y, width) {
  const points = drawn.flatMap((d) => d.points), boxes = drawn.flatMap((d) => d.boxes), found = [];
  for (const { by, level, curve } of drawn.flatMap((d) => d.parts)) {
    if (found.some((one) => one.by === by && one.level === level)) continue;
    const size = wide(by), block = Math.ceil(level), middle = curve[25];
    const far = ([px, py], left, at) => Math.hypot(Math.max(left - px, 0, px - left - size), Math.max(at - 9 - py, 0, py - at - 2));
    const free = (left, at) => points.every((point) => far(point, left, at) >= 6)
      && boxes.every(([from, to, line]) => Math.abs(line - at) > 13 || to < left - 4 || from > left + size + 4);
    let best = { left: GUTTER + 2, at: y(block) + 21, cost: Infinity };
    for (let at = y(block) + 21; at <= y(block - 1) - 12; at += 3) {
      for (let left = GUTTER + 2; left + size < width - 12; left += 3) {
        const cost = far(middle, left, at);
        if (cost < best.cost && free(left, at)) best = { left, at, cost };
      }
    }
    boxes.push([best.left, best.left + size, best.at]);
    found.push({ by, level, mark: words(best.left, best.at, by, { class: "lane-text" }) });
  }
  return found.map((one) => one.mark);
}

function tokenMarks(columns, step, y, roles) {
  return columns.flatMap((column, i) => {
    const x = GUTTER + step * (i + 0.5), w = Math.min(step - 3, 40);
    const most = Math.max(1, Math.floor(w / 6.2));
    const text = column.text.length > most ? `${column.text.slice(0, most - 1)}…` : column.text;
    const tip = column.text && !column.gap ? `${column.text}${column.role ? `: ${column.role}` : ""}` : null;
    const colour = column.role ? `token role-fill-${roles.indexOf(column.role) % 6}` : "token plain";
    return [column.gap ? "" : node("rect", { x: x - w / 2, y, width: w, height: TOKEN, rx: 5, class: colour, "data-tip": tip }),
      words(x, y + 14, text, { "text-anchor": "middle", class: column.role ? "token-text" : "soft-text" })].filter(Boolean);
  });
}

function flowKeys(lanes) {
  const slots = distinct(lanes.map((l) => l.slot));
  return legend(lanes.map((lane) => ({
    name: `${lane.slot}: ${format.percent(lane.share)} of ${lane.n} documents${lane.state === "proven" ? "" : `, ${STATES[lane.state]}`}`,
    mark: node("line", { x1: 1, x2: 25, y1: 7, y2: 7, "stroke-width": 1 + 4.5 * lane.share, class: `lane ${colourClass(slots.indexOf(lane.slot))} ${lane.state}` }),
  })));
}

const flowRows = (lanes) => lanes.flatMap((lane, route) => lane.steps.map(([level, place, by, share]) => ({
  slot: lane.slot, route, state: STATES[lane.state], documents: lane.n, share_of_route: lane.share, low: lane.interval[0], high: lane.interval[1], blocks_passed: level, place, moved_by: by, share_of_move: share })));

function describeFlow(number, lanes) {
  const told = lanes.map((lane) => {
    const way = lane.steps.slice(1).map(([level, place, by]) => `${place}${by ? ` by ${by}` : ""} ${level % 1 ? "inside" : "after"} block ${Math.ceil(level) - 1}`);
    return `${lane.slot} goes to ${way.join(", then ")} in ${format.percent(lane.share)} of ${lane.n} documents (${STATES[lane.state]})`;
  });
  return `How information moves in ${page.overview.models[number].label}: ${told.join("; ")}.`;
}
