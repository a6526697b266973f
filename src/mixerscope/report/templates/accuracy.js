// Accuracy on fresh documents against what a model costs. A point is a run; a line goes through the median over seeds.
const AXES = { width: "width", parameters: "parameters", state: "numbers in the state", lr: "learning rate" };
choices.accuracy = [{ name: "against", label: "against", options: (holder) => axesOf(holder).map((a) => [a, AXES[a]]) }];

// Those that differ between the models, widths first; with one width, parameters and states still tell models apart.
function axesOf(holder) {
  const models = page.overview.tasks[holder.dataset.task].models.map((i) => page.overview.models[i]);
  const differ = Object.keys(AXES).filter((axis) => distinct(models.map((m) => m[axis])).length > 1);
  const lines = [...groupBy(models, (m) => m.series).values()].some((runs) => distinct(runs.map((m) => m.width)).length > 1);
  const order = lines ? differ : [...differ.filter((axis) => axis !== "width"), ...differ.filter((axis) => axis === "width")];
  return order.length ? order : ["parameters"];
}

kinds.accuracy = (holder, width) => {
  const task = page.overview.tasks[holder.dataset.task];
  const axis = chosenValue(holder, "against") || axesOf(holder)[0];
  const all = task.models.map((i) => page.overview.models[i]);
  const models = shownOf(task).map((i) => page.overview.models[i]).filter((m) => accuracyOf(m) !== null && m[axis] > 0);
  const series = distinct(all.map((m) => m.series)), mechanisms = distinct(all.map((m) => m.mechanism));
  const height = 320, left = 44, right = width - 12, top = 14, floor = height - 44;
  const values = distinct(models.map((m) => m[axis])).sort((a, b) => a - b);
  const ends = values.length ? [values[0] / 1.15, values.at(-1) * 1.15] : [1, 2];
  const x = scale(ends, [left + 8, right - 8], true), y = scale([0, 1], [floor, top]);
  // With learning rates on the axis every run counts; else the best rate of each seed does, and the others are faint.
  const counted = (m) => axis === "lr" || m.chosen;
  const lines = medians(models.filter(counted), axis);
  const edges = new Set(task.edges.map((e) => `${e.series}|${e.width}`));
  const svg = canvas(width, height, `Accuracy against ${AXES[axis]}. ${lines.flatMap(({ name, points }) => points.map((p) => `${name} at ${format.setting(p.x)}: ${format.percent(p.y)}`)).slice(0, 60).join("; ")}.`);
  svg.append(yAxis([0, 0.25, 0.5, 0.75, 1], y, left, right, (v) => `${100 * v} %`),
    xAxis(values, x, floor, (v) => (axis === "lr" ? format.setting(v) : v >= 10000 ? `${Math.round(v / 1000)}k` : String(v)), AXES[axis], [left, right]));
  if (task.guessing !== null) svg.append(baseline(y(task.guessing), [left, right], `guessing ${format.percent(task.guessing)}`, top));
  for (const { name, points } of lines) {
    if (points.length > 1) svg.append(node("polyline", { points: points.map((p) => `${x(p.x)},${y(p.y)}`).join(" "), class: `line ${lineClass(series.indexOf(name))}` }));
  }
  const dodge = (m) => (series.indexOf(m.series) - (series.length - 1) / 2) * Math.min(5, 30 / series.length);
  const few = models.filter(counted).length <= 60;
  for (const m of [...models].sort((a, b) => counted(a) - counted(b))) {
    const [px, py] = [x(m[axis]) + dodge(m), y(accuracyOf(m))];
    const kind = SHAPES[mechanisms.indexOf(m.mechanism) % SHAPES.length];
    const said = m.accuracy ? estimated(m.accuracy, format.percent) : `${format.percent(m.dev)} on the dev set`;
    const tip = `${m.label}\naccuracy ${said}\n${m.mechanism}; ${AXES[axis]} ${format.setting(m[axis])}`;
    const faint = counted(m) ? "" : "faint";
    if (few && m.accuracy && counted(m)) svg.append(node("line", { x1: px, x2: px, y1: y(m.accuracy[1]), y2: y(m.accuracy[2]), class: `whisker ${colourClass(series.indexOf(m.series))}` }));
    if (counted(m) && edges.has(`${m.series}|${m.width}`)) svg.append(node("circle", { cx: px, cy: py, r: 9, class: "ring" }));
    svg.append(shape(kind, px, py, counted(m) ? 5 : 2.5, { class: `point ${colourClass(series.indexOf(m.series))} ${faint}`, "data-tip": tip }));
  }
  if (axis !== "lr" && lines.every(({ points }) => points.length < 2)) nameSingles(svg, models.filter(counted), x, y, axis, dodge, width);
  const keys = legend([...series.map((name, i) => lineKey(i, name)), ...mechanisms.map((name, i) => shapeKey(SHAPES[i % SHAPES.length], name)),
    ...(task.edges.length ? [{ name: "best rate at the edge of the grid", mark: node("circle", { cx: 13, cy: 7, r: 6, class: "ring" }) }] : [])]);
  const single = models.length && Math.max(...[...groupBy(models.filter(counted), (m) => `${m.series}|${m.width}|${m.lr}`).values()].map((g) => g.length)) === 1 && distinct(models.map((m) => m.seed)).length === 1;
  const rows = models.map((m) => ({ run_id: m.run_id, model: m.label, series: m.series, [axis]: m[axis], seed: m.seed, lr: m.lr, accuracy: m.accuracy?.[0], low: m.accuracy?.[1], high: m.accuracy?.[2], n: m.accuracy?.[3], dev_accuracy: m.dev, mechanism: m.mechanism, best_rate: m.chosen, guessing: task.guessing }));
  return { svg, rows, keys, note: `A point is a run${few ? " with its interval over documents" : ""}${single ? "; every one a single seed" : "; a line goes through the median over seeds"}${models.some((m) => !counted(m)) ? "; faint ones have a learning rate that is not the best on the dev set" : ""}.` };
};

function medians(models, axis) {
  return [...groupBy(models, (m) => m.series)].map(([name, runs]) => ({
    name,
    points: [...groupBy(runs, (m) => m[axis])].map(([at, found]) => ({ x: at, y: median(found.map(accuracyOf)), n: found.length })).sort((a, b) => a.x - b.x),
  }));
}

// Points without a line to name them get their name beside them, where no other name stands.
function nameSingles(svg, models, x, y, axis, dodge, width) {
  const taken = [];
  for (const m of models) {
    const size = wide(m.series), px = x(m[axis]) + dodge(m), py = y(accuracyOf(m));
    if (taken.some(([,, l, name, at]) => name === m.series && Math.abs(at - px) < 8 && Math.abs(l - py) < 16)) continue; // another seed
    const after = px + 13 + size < width - 8;
    let line = py + 4;
    const from = after ? px + 12 : px - 12 - size;
    while (taken.some(([a, b, l]) => Math.abs(l - line) < 12 && from < b && from + size > a)) line += 13;
    taken.push([from, from + size, line, m.series, px]);
    svg.append(words(after ? px + 12 : px - 12, line, m.series, { "text-anchor": after ? "start" : "end", class: "soft-text" }));
  }
}
