// Learning curves, and below them, on the same axis, how the mechanism of one model came about.
const METRICS = { accuracy: "accuracy on the dev set", likelihood: "likelihood on the dev set", loss: "training loss (nats per answer)" };
// Where a state is tracked a document has many answers, of which training looks at the last.
function metricsOf(holder) {
  return page.overview.tasks[holder.dataset.task].tracked ? { ...METRICS, accuracy: "last answer on the dev set" } : METRICS;
}
// Those with a name come first, then the most accurate.
const watched = (holder) => page.overview.tasks[holder.dataset.task].models.filter((i) => page.overview.emergence[i])
  .map((i) => page.overview.models[i]).sort((a, b) => b.named - a.named || accuracyOf(b) - accuracyOf(a)).map((m) => m.number);
choices.curves = [
  { name: "metric", label: "show", options: (holder) => Object.entries(metricsOf(holder)) },
  { name: "which", label: "of", options: (holder) => (manyCurves(holder) ? [["best", "best rates"], ["all", "all runs"]] : []) },
  { name: "watched", label: "emergence of", options: (holder) => watched(holder).map((i) => [i, page.overview.models[i].label]) },
];
const MOST_LINES = 18;
const manyCurves = (holder) => page.overview.tasks[holder.dataset.task].models.length > MOST_LINES;

kinds.curves = (holder, width) => {
  const task = page.overview.tasks[holder.dataset.task];
  const metric = chosenValue(holder, "metric") || "accuracy";
  const best = manyCurves(holder) && chosenValue(holder, "which") !== "all";
  const numbers = shownOf(task).filter((i) => page.overview.curves[i].step.length && (!best || page.overview.models[i].chosen));
  // Seeds of a setting have its colour, thin, and a line through their median.
  const settings = groupBy(numbers, (i) => page.overview.models[i].setting);
  const several = settings.size < numbers.length && settings.size <= MOST_LINES;
  const by = several ? "setting" : numbers.length <= MOST_LINES ? "label" : "series";
  const names = distinct(task.models.filter((i) => by === "series" || numbers.includes(i)).map((i) => page.overview.models[i][by]));
  const under = chosenWatched(holder);
  const height = under === null ? 320 : 250, left = 44, right = width - 12, top = 12, floor = height - 40, whole = under === null ? height : 2 * height - 30;
  const last = Math.max(1, ...numbers.map((i) => page.overview.curves[i].step.at(-1)));
  const logarithmic = under !== null;
  // On a logarithmic axis nothing stands at step 0.
  const looks = logarithmic ? [...numbers.flatMap((i) => page.overview.curves[i].step), ...page.overview.emergence[under].flatMap((line) => line.step.filter((_, k) => line.share[k] !== null))] : [];
  const first = logarithmic ? Math.min(...looks.filter((s) => s > 0), last) : 0;
  const x = scale([first, last], [left, right], logarithmic);
  const highest = metric === "loss" ? Math.max(0.1, ...numbers.map((i) => Math.max(...page.overview.curves[i].loss.filter((v) => v !== null), 0))) : 1;
  const y = scale([0, highest], [floor, top]);
  const steps = logarithmic ? powers(first, last) : ticks(0, last, width < 500 ? 4 : 6);
  const svg = canvas(width, whole, `${metricsOf(holder)[metric]} against training steps; at the end: ${numbers.slice(0, 40).map((i) => `${page.overview.models[i].label} ${page.overview.curves[i][metric].at(-1)}`).join(", ")}.`);
  svg.append(yAxis(metric === "loss" ? ticks(0, highest) : [0, 0.25, 0.5, 0.75, 1], y, left, right, (v) => (metric === "accuracy" ? `${100 * v}%` : String(v))));
  if (under === null) svg.append(xAxis(steps, x, floor, (v) => stepName(v), "training steps", [left, right]));
  const thin = several || numbers.length > MOST_LINES ? "thin" : "";
  for (const i of numbers) {
    const { curve, model } = { curve: page.overview.curves[i], model: page.overview.models[i] };
    const points = curve.step.map((s, k) => [s, curve[metric][k]]).filter(([s, v]) => v !== null && s >= first);
    if (!points.length) continue;
    const style = lineClass(names.indexOf(model[by]));
    const at = points.map(([s, v]) => `${x(s).toFixed(1)},${y(Math.min(v, highest)).toFixed(1)}`);
    const end = points.at(-1);
    const tip = `${model.label}\n${metricsOf(holder)[metric]} ${format.number(end[1])} at step ${format.thousands(end[0])}${metric === "loss" ? "" : `, n = ${model.dev_n}`}; training ${model.outcome}`;
    svg.append(node("polyline", { points: at.join(" "), class: `line ${style} ${thin}`, "data-tip": thin ? null : tip }),
      shape({ reached: "circle", finished: "square", diverged: "cross" }[model.outcome], x(end[0]), y(Math.min(end[1], highest)), thin ? 2 : 4, { class: `point ${style}`, "data-tip": tip }));
  }
  if (several) for (const [name, members] of settings) {
    const middle = medianCurve(members, metric).filter(([s]) => s >= first).map(([s, v]) => `${x(s).toFixed(1)},${y(Math.min(v, highest)).toFixed(1)}`);
    const last = members.map((i) => page.overview.curves[i][metric].filter((v) => v !== null).at(-1)).filter((v) => v !== undefined).sort((a, b) => a - b);
    if (last.length) svg.append(node("polyline", { points: middle.join(" "), class: `line ${lineClass(names.indexOf(name))}`,
      "data-tip": `${name}: ${last.length} seed${last.length > 1 ? "s" : ""}\n${metricsOf(holder)[metric]} at the end: median ${format.number(median(last))}, from ${format.number(last[0])} to ${format.number(last.at(-1))}` }));
  }
  if (metric === "accuracy" && task.guessing !== null) svg.append(baseline(y(task.guessing), [left, right], `guessing ${format.percent(task.guessing)}`, top,
    numbers.flatMap((i) => along(page.overview.curves[i].step.flatMap((s, k) => (s < first || page.overview.curves[i].accuracy[k] === null ? [] : [[x(s), y(page.overview.curves[i].accuracy[k])]]))))));
  const keys = names.length > 1 ? names.map((name, i) => lineKey(i, name)) : [];
  const ends = distinct(numbers.map((i) => page.overview.models[i].outcome)).map((o) => shapeKey({ reached: "circle", finished: "square", diverged: "cross" }[o], { reached: "reached its target", finished: "used all its steps", diverged: "diverged" }[o]));
  const below = under === null ? [] : emergence(svg, under, x, [left, right], height, steps);
  const rows = [...numbers.flatMap(curveRows), ...(under === null ? [] : emergenceRows(under))];
  return { svg, rows, keys: [legend([...keys, ...ends], below.length ? "above" : ""), legend(below, "below")], note: [several ? "Thin: seeds; thick: their median, in which a run that has stopped counts with its last value." : "", under === null ? (best ? "Of each seed, the learning rate that is best on the dev set." : "") : "Below: the share restored at each role between the blocks while the model trained, its interval shaded; a line begins where the model first reads the corrupted token at all."].filter(Boolean).join(" "), stamp: numbers.length && numbers.every((i) => page.overview.models[i].seeds === 1) ? "single seeds" : "" };
};

// The model whose emergence is asked for, else the first that the filters leave.
function chosenWatched(holder) {
  const left = watched(holder).filter((i) => filters.left.has(i));
  const select = holder.querySelector('select[name="watched"]');
  const chosen = left.includes(Number(select?.value || NaN)) ? Number(select.value) : left[0] ?? null;
  if (select) {
    for (const option of select.options) option.hidden = option.disabled = !left.includes(Number(option.value));
    if (chosen !== null) select.value = chosen;
  }
  return chosen;
}

// Of several runs, at every step that one of them was evaluated at.
function medianCurve(members, metric) {
  const curves = members.map((i) => page.overview.curves[i]).map((c) => c.step.map((s, k) => [s, c[metric][k]]).filter(([, v]) => v !== null)).filter((c) => c.length);
  const steps = distinct(curves.flatMap((c) => c.map(([s]) => s))).sort((a, b) => a - b);
  const first = Math.max(...curves.map((c) => c[0][0]));
  return steps.filter((s) => s >= first).map((s) => [s, median(curves.map((c) => c.findLast(([at]) => at <= s)[1]))]);
}

function emergence(svg, number, x, [left, right], top, steps) {
  const floor = top + 170;
  const y = scale([-0.1, 1.1], [floor, top]);
  svg.append(words(left, top - 12, `share restored in ${page.overview.models[number].label}`, { class: "soft-text" }), yAxis([0, 0.5, 1], y, left, right, String),
    xAxis(steps, x, floor, stepName, "training steps", [left, right]));
  const inside = (v) => Math.max(-0.1, Math.min(1.1, v));
  return page.overview.emergence[number].map((line, i) => {
    const known = line.step.map((s, k) => [s, line.share[k], line.low[k], line.high[k]]).filter(([s, v]) => v !== null && s > 0);
    const bounded = known.filter(([, , low]) => low !== null);
    svg.append(node("polygon", { points: [...bounded.map(([s, , low]) => `${x(s)},${y(inside(low))}`), ...bounded.map(([s, , , high]) => `${x(s)},${y(inside(high))}`).reverse()].join(" "), class: `spread ${colourClass(i)}` }),
      node("polyline", { points: known.map(([s, v]) => `${x(s)},${y(inside(v))}`).join(" "), class: `line ${lineClass(i)}` }));
    for (const [s, v, low, high] of known) {
      const bounds = low === null ? "" : ` [${format.number(low)}, ${format.number(high)}]`;
      svg.append(shape("circle", x(s), y(inside(v)), 3, { class: `point ${lineClass(i)}`, "data-tip": `${line.name}, step ${format.thousands(s)}\nshare ${format.number(v)}${bounds}, n = ${line.n}` }));
    }
    return lineKey(i, line.name);
  });
}

const stepName = (v) => (v >= 10000 ? `${v / 1000}k` : String(v));

function powers(first, last) {
  const found = [];
  for (let p = 10 ** Math.floor(Math.log10(first)); p <= last; p *= 10) for (const m of [1, 2, 5]) if (m * p >= first && m * p <= last) found.push(m * p);
  return found;
}
