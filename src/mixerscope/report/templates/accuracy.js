// Accuracy on fresh documents against what a model costs. A point is a run; seeds of one setting stand in a box from the
// lowest to the highest with a bar at their median, through which a line goes; a single seed is a hollow point.
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

// Seeds of one setting, at one place of the axis: [{ series, width, x, runs, values }].
function seedGroups(models, axis) {
  return [...groupBy(models, (m) => `${m.series}|${m.width}|${m[axis]}`).values()].map((runs) => {
    const sorted = [...runs].sort((a, b) => accuracyOf(a) - accuracyOf(b));
    return { series: runs[0].series, width: runs[0].width, x: runs[0][axis], runs: sorted, values: sorted.map(accuracyOf) };
  });
}

// What several seeds say together; the interval is of all of them, so where filters leave some out there is none.
function saidOfSeeds(group, task, what) {
  const { values, runs } = group;
  const mean = task.seeds[runs.map((m) => m.number).sort((a, b) => a - b).join(",")];
  const quartiles = values.length > 4 ? `, half of them from ${format.percent(quantile(values, 0.25))} to ${format.percent(quantile(values, 0.75))}` : "";
  const interval = mean ? `\nmean ${estimated(mean, format.percent)} seeds` : `\nno interval over ${values.length} seeds`;
  return `${group.series}, ${what}: ${values.length} seeds\nmedian ${format.percent(median(values))}, from ${format.percent(values[0])} to ${format.percent(values.at(-1))}${quartiles}${interval}`;
}

kinds.accuracy = (holder, width) => {
  const task = page.overview.tasks[holder.dataset.task];
  const axis = chosenValue(holder, "against") || axesOf(holder)[0];
  const all = task.models.map((i) => page.overview.models[i]);
  const models = shownOf(task).map((i) => page.overview.models[i]).filter((m) => accuracyOf(m) !== null && m[axis] > 0);
  const series = distinct(all.map((m) => m.series)), mechanisms = distinct(all.map((m) => m.mechanism));
  const height = watched(holder).length ? 480 : 320, left = 44, right = width - 12, top = 14, floor = height - 44;
  const values = distinct(models.map((m) => m[axis])).sort((a, b) => a - b);
  const ends = values.length ? [values[0] / 1.15, values.at(-1) * 1.15] : [1, 2];
  const x = scale(ends, [left + 8, right - 8], true), y = scale([0, 1], [floor, top]);
  // With learning rates on the axis every run counts; else the best rate of each seed does, and the others are faint.
  const counted = (m) => axis === "lr" || m.chosen;
  const groups = seedGroups(models.filter(counted), axis), singles = groups.filter((g) => g.runs.length === 1);
  const lines = [...groupBy(groups, (g) => (axis === "lr" ? `${g.series}|${g.width}` : g.series)).values()].map((found) => ({
    name: found[0].series, points: found.map((g) => ({ x: g.x, y: median(g.values), n: g.values.length })).sort((a, b) => a.x - b.x) }));
  const edges = new Set(task.edges.map((e) => `${e.series}|${e.width}`));
  const svg = canvas(width, height, `Accuracy against ${AXES[axis]}. ${lines.flatMap(({ name, points }) => points.map((p) => `${name} at ${format.setting(p.x)}: ${format.percent(p.y)}, ${p.n} seed${p.n > 1 ? "s" : ""}`)).slice(0, 60).join("; ")}.`);
  svg.append(yAxis([0, 0.25, 0.5, 0.75, 1], y, left, right, (v) => `${100 * v}%`),
    xAxis(values, x, floor, (v) => (axis === "lr" ? format.setting(v) : v >= 10000 ? `${Math.round(v / 1000)}k` : String(v)), AXES[axis], [left, right]));
  const apart = Math.min(singles.length === groups.length ? 5 : 18, (right - left) / 2 / Math.max(1, values.length) / series.length, 30);
  const shiftOf = (name) => (series.indexOf(name) - (series.length - 1) / 2) * apart;
  const place = (m) => x(m[axis]) + shiftOf(m.series);
  const thick = Math.max(4, Math.min(16, apart - 3));
  for (const { name, points } of lines) {
    if (points.length > 1) svg.append(node("polyline", { points: points.map((p) => `${x(p.x) + shiftOf(name)},${y(p.y)}`).join(" "), class: `line ${lineClass(series.indexOf(name))}` }));
  }
  const tipOf = (m, alone) => {
    const said = m.accuracy ? estimated(m.accuracy, format.percent) : `${format.percent(m.dev)} on the dev set, n = ${m.dev_n}`;
    return `${m.label}${alone ? ", a single seed" : ""}\n${m.answers} ${said}\n${m.mechanism}; ${AXES[axis]} ${format.setting(m[axis])}`;
  };
  const mark = (m, px, style, r) => shape(SHAPES[mechanisms.indexOf(m.mechanism) % SHAPES.length], px, y(accuracyOf(m)), r, { class: `point ${colourClass(series.indexOf(m.series))} ${style}`, "data-tip": tipOf(m, style === "single") });
  for (const m of models.filter((one) => !counted(one))) svg.append(mark(m, place(m), "faint", 2.5));
  const few = groups.length <= 60;
  for (const group of groups) {
    const { runs, values: found } = group, middle = place(runs[0]), colour = colourClass(series.indexOf(group.series));
    if (edges.has(`${group.series}|${group.width}`)) svg.append(node("circle", { cx: middle, cy: y(median(found)), r: 9, class: "ring" }));
    if (runs.length === 1) {
      const [m] = runs;
      if (few && m.accuracy) svg.append(node("line", { x1: middle, x2: middle, y1: y(m.accuracy[1]), y2: y(m.accuracy[2]), class: `whisker ${colour}` }));
      svg.append(mark(m, middle, "single", 5));
      continue;
    }
    const tip = saidOfSeeds(group, task, `${AXES[axis]} ${format.setting(group.x)}`);
    const box = { x: middle - thick / 2 - 2, width: thick + 4, y: y(found.at(-1)) - 3, height: y(found[0]) - y(found.at(-1)) + 6, rx: 3 };
    svg.append(node("rect", { ...box, class: `seeds ${colour}`, "data-tip": tip }),
      node("line", { x1: box.x - 2, x2: box.x + box.width + 2, y1: y(median(found)), y2: y(median(found)), class: `median ${colour}`, "data-tip": tip }));
    runs.forEach((m, k) => svg.append(mark(m, middle + ((k % 5) - 2) * Math.min(3, thick / 6), "of-seeds", 3)));
  }
  const alone = axis !== "lr" && lines.every(({ points }) => points.length < 2);
  const named = alone ? nameGroups(svg, groups, place, y, thick, width, task.guessing) : [];
  if (task.guessing !== null) {
    const through = groups.flatMap((g) => along([[place(g.runs[0]), y(g.values[0])], [place(g.runs[0]), y(g.values.at(-1))]]));
    const drawn = [...through, ...named, ...models.map((m) => [place(m), y(accuracyOf(m))]), ...lines.flatMap(({ name, points }) => along(points.map((p) => [x(p.x) + shiftOf(name), y(p.y)])))];
    svg.append(baseline(y(task.guessing), [left, right], `guessing ${format.percent(task.guessing)}`, top, drawn));
  }
  const single = singles.length ? [{ name: "single seed: another may differ", mark: shape("circle", 13, 7, 4.5, { class: "point single grey" }) }] : [];
  const several = singles.length < groups.length ? [{ name: "seeds: lowest, median, highest", mark: node("g", { class: "grey" }, node("rect", { x: 8, y: 1, width: 10, height: 12, rx: 2, class: "seeds" }), node("line", { x1: 6, x2: 20, y1: 5, y2: 5, class: "median" })) }] : [];
  const keys = legend([...series.map((name, i) => lineKey(i, name)), ...mechanisms.map((name, i) => shapeKey(SHAPES[i % SHAPES.length], name)), ...several, ...single,
    ...(task.edges.length ? [{ name: "best rate at the edge of the grid", mark: node("circle", { cx: 13, cy: 7, r: 6, class: "ring" }) }] : [])]);
  const rows = models.map((m) => ({ run_id: m.run_id, model: m.label, series: m.series, [axis]: m[axis], seed: m.seed, lr: m.lr, accuracy: m.accuracy?.[0], low: m.accuracy?.[1], high: m.accuracy?.[2], n: m.accuracy?.[3], dev_accuracy: m.dev, mechanism: m.mechanism, best_rate: m.chosen, guessing: task.guessing }));
  const note = [few && singles.length ? "Lines through single seeds are intervals over documents." : "", models.some((m) => !counted(m)) ? "Faint: learning rates that are not the best of their seed on the dev set." : ""];
  return { svg, rows, keys, stamp: models.length && singles.length === groups.length ? "single seeds" : "", note: note.filter(Boolean).join(" ") };
};

// Groups without a line to name them get their name beside them, once, where neither another name nor another group stands,
// nor the line of guessing goes. Points of the names are returned, so that what is drawn later keeps off them.
function nameGroups(svg, groups, place, y, thick, width, guessing) {
  const taken = groups.map((g) => [place(g.runs[0]) - thick / 2 - 4, place(g.runs[0]) + thick / 2 + 4, y(median(g.values)) + 4, g]);
  const names = [];
  for (const group of groups) {
    const size = wide(group.series), px = place(group.runs[0]), gap = group.runs.length > 1 ? thick / 2 + 8 : 12;
    const after = px + gap + 1 + size < width - 8;
    const from = after ? px + gap : px - gap - size;
    const crossed = (line) => guessing !== null && line - 10 < y(guessing) && line + 4 > y(guessing);
    const blocked = (line) => crossed(line) || taken.some(([a, b, l, whose]) => whose !== group && Math.abs(l - line) < 12 && from < b && from + size > a);
    const beside = y(median(group.values)) + 4;
    // Above the line of guessing where that is enough, else downwards.
    const lifted = crossed(beside) ? y(guessing) - 5 : beside;
    let line = blocked(lifted) ? beside : lifted;
    while (blocked(line)) line += 1;
    taken.push([from, from + size, line]);
    names.push(...along([[from, line - 4], [from + size, line - 4]]));
    svg.append(words(after ? px + gap : px - gap, line, group.series, { "text-anchor": after ? "start" : "end", class: "soft-text" }));
  }
  return names;
}
