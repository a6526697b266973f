// Tracked states: accuracy by length, where the state can be read, what erasing it costs, what follows when it is written.
const trackedOf = (holder) => page.details.models[holder.dataset.model].tracked;
const LEFT = 44;

// An interval as it is read; results of older versions have none.
const between = (low, high, write) => (low === null || low === undefined ? " (no interval was kept)" : ` [${write(low)}, ${write(high)}]`);

// A plane for lines over evenly spaced places.
function plane(width, label, places, title, height = 220, low = 0, inset = 14) {
  const right = width - 10, top = 12, slanted = Math.max(...places.map((p) => wide(p))) > (right - LEFT) / places.length;
  const floor = height - (slanted ? 66 : 42);
  const svg = canvas(width, height, label);
  const x = scale([0, Math.max(1, places.length - 1)], [LEFT + inset, right - inset]), y = scale([low, 1], [floor, top]);
  svg.append(yAxis([0, 0.25, 0.5, 0.75, 1], y, LEFT, right, (v) => (v % 0.5 ? "" : String(v))), node("g", { class: "axis" }, node("line", { x1: LEFT, x2: right, y1: floor, y2: floor })));
  places.forEach((place, i) => {
    const turned = slanted ? { transform: `rotate(-30 ${x(i) + 6} ${floor + 14})`, "text-anchor": "end", x: x(i) + 6 } : { "text-anchor": "middle" };
    svg.append(words(Math.min(x(i), width - 2 - wide(place) / 2), floor + 15, place, { class: "soft-text", ...turned }));
  });
  if (title) svg.append(words((LEFT + right) / 2, height - 4, title, { "text-anchor": "middle", class: "soft-text" }));
  return { svg, x, y, right, top };
}

function drawLine(svg, values, x, y, style, tipOf, mark = "circle") {
  const known = values.map((v, i) => [i, v]).filter(([, v]) => v !== null);
  svg.append(node("polyline", { points: known.map(([i, v]) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" "), class: `line ${style}` }));
  for (const [i, v] of known) svg.append(shape(mark, x(i), y(v), 3.5, { class: `point ${style}`, "data-tip": tipOf(i, v) }));
}

kinds.lengths = (holder, width) => {
  const { lengths } = trackedOf(holder);
  const height = 230, right = width - 10, top = 12, floor = height - 42;
  const last = Math.max(...lengths.map((one) => one.by.length));
  const x = scale([1, last], [LEFT + 4, right - 6], true), y = scale([0, 1], [floor, top]);
  const svg = canvas(width, height, `Accuracy by position. ${lengths.map((one) => `documents of ${one.length} inputs: ${format.percent(one.accuracy[0])} of all answers, ${format.percent(one.last[0])} of last ones`).join("; ")}.`);
  const steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].filter((v) => v <= last);
  svg.append(yAxis([0, 0.25, 0.5, 0.75, 1], y, LEFT, right, (v) => `${100 * v}%`), xAxis(steps, x, floor, String, "inputs so far", [LEFT, right]),
    baseline(y(lengths[0].guessing), [LEFT, right], `guessing ${format.percent(lengths[0].guessing)}`, top, lengths.flatMap((one) => one.by.map((v, i) => [x(i + 1), v === null ? -1 : y(v)]))));
  const trained = lengths.find((one) => one.times === 1);
  if (trained) svg.append(node("g", { class: "baseline" }, node("line", { x1: x(trained.length), x2: x(trained.length), y1: top, y2: floor })), words(x(trained.length) - 4, floor - 6, "trained up to here", { "text-anchor": "end", class: "soft-text" }));
  lengths.forEach((one, k) => {
    const known = one.by.map((v, i) => [i + 1, v]).filter(([, v]) => v !== null);
    const tip = `documents of ${one.length} inputs (${one.times} x)\nall answers ${estimated(one.accuracy, format.percent)}\nlast answer ${estimated(one.last, format.percent)}\nall of a document right: ${format.percent(one.whole[0])}`;
    svg.append(node("polyline", { points: known.map(([i, v]) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" "), class: `line ${lineClass(k)}`, "data-tip": tip }));
    if (known.length) svg.append(shape("circle", x(known.at(-1)[0]), y(known.at(-1)[1]), 4, { class: `point ${lineClass(k)}`, "data-tip": tip }));
  });
  const rows = lengths.flatMap((one) => one.by.map((v, i) => ({ length: one.length, times: one.times, position: i + 1, accuracy: v, n: one.accuracy[3], guessing: one.guessing })));
  return { svg, rows, keys: legend(lengths.map((one, k) => lineKey(k, `${one.length} inputs${one.times === 1 ? ", as trained" : `, ${one.times} times as long`}`))) };
};

kinds.readable = (holder, width) => {
  const { at, lines } = trackedOf(holder).probes;
  const { svg, x, y } = plane(width, `Readability of the state by linear probes. ${lines.map((l) => `${l.name}: ${l.readability.map((v, i) => `${at[i]} ${v === null ? "none" : v.toFixed(2)}`).join(", ")}`).join("; ")}.`, at, "", 230, -0.05);
  lines.forEach((line, k) => drawLine(svg, line.readability.map((v) => v === null ? null : Math.max(-0.05, Math.min(1, v))), x, y, lineClass(k), (i) =>
    `${line.name}, ${at[i]}\nreadability ${format.number(line.readability[i])}\nprobe ${format.percent(line.accuracy[i])}${between(line.low?.[i], line.high?.[i], format.percent)}, n = ${line.n} vectors; without it ${format.percent(line.floor)}, the model ${format.percent(line.ceiling)}\ncontrols: shuffled ${format.percent(line.shuffled[i])}, random function ${format.percent(line.control[i])}, untrained network ${format.percent(line.untrained[i])}`));
  const rows = lines.flatMap((line) => at.map((place, i) => ({ label: line.name, place, readability: line.readability[i], accuracy: line.accuracy[i], accuracy_low: line.low?.[i] ?? null, accuracy_high: line.high?.[i] ?? null, shuffled: line.shuffled[i], control: line.control[i], untrained: line.untrained[i], floor: line.floor, ceiling: line.ceiling, n: line.n })));
  return { svg, rows, keys: lines.length > 1 ? legend(lines.map((line, k) => lineKey(k, line.name))) : null, note: "0: no better than position, chance or the last tokens; 1: as well as the model itself answers." };
};

const clamp = (v) => Math.max(0, Math.min(1, v));
choices.erased = [{ name: "method", label: "by", options: (holder) => distinct(trackedOf(holder).erasures.rows.map((r) => r.method)).map((m) => [m, m]) }];
kinds.erased = (holder, width) => {
  const { rows: all, chance, n } = trackedOf(holder).erasures;
  const method = chosenValue(holder, "method") || all[0].method;
  const rows = all.filter((r) => r.method === method).map((r) => ({ ...r, chance, n }));
  const read = (v) => (v === null ? "unknown" : format.number(v));
  const lost = (r) => (r.damage === null ? "unknown" : format.number(r.damage));
  const { svg, x, y } = plane(width, `What erasing the state costs, by ${method}; what is read from chance, 0, to all of it, 1. ${rows.map((r) => `${r.place}: lost ${lost(r)}, read after it ${read(r.left_share)}, in other documents ${read(r.unseen_share)}${r.why ? `, ${r.why}` : ""}`).join("; ")}.`, rows.map((r) => r.place), "", 230, 0, 28);
  const thick = Math.min(12, (width - LEFT) / rows.length / 4);
  rows.forEach((r, i) => {
    const tip = erasedTip(r, read);
    const bar = (v, shift, style) => node("rect", { x: x(i) + shift * (thick + 1) - thick / 2, y: y(clamp(v)), width: thick, height: Math.max(1, y(0) - y(clamp(v))), class: `bar-mark ${style}`, "data-tip": tip });
    if (r.damage !== null) svg.append(bar(r.damage, -1, `c0 ${r.speaks ? "" : "hollow"}`));
    if (r.left_share !== null) svg.append(bar(r.left_share, 0, "c1"));
    if (r.unseen_share !== null) svg.append(bar(r.unseen_share, 1, "c2"));
  });
  const key = (style, name) => ({ name, mark: node("rect", { x: 8, y: 2, width: 10, height: 10, class: `bar-mark ${style}` }) });
  const keys = [key("c0", "lost, where probes read nothing after"), key("c0 hollow", "lost, says nothing of the state"), key("c1", "still read by a fresh probe"), key("c2", "still read by a probe of other documents")];
  return { svg, rows, keys: legend(keys), note: "Lost: 0 is nothing, 1 is all but guessing. Read: 0 is chance, 1 is everything. Verdicts look between blocks and into recurrent states alone." };
};

function erasedTip(r, read) {
  const lost = r.damage === null ? "unknown: the model knows too little" : format.number(r.damage) + between(r.damage_low, r.damage_high, format.number);
  const elsewhere = r.unseen === null ? "nobody asked one of other documents" : `one of other documents ${read(r.unseen_share)}`;
  const beats = r.beats === null ? "" : `\nworse than ${format.percent(r.beats)} of random subspaces of the same variance`;
  const said = r.speaks ? "the state was there and is gone" : `says nothing of the state: ${r.why}`;
  return `${r.place}, ${r.method}, rank ${r.rank}\nlost ${lost} of what is known beyond guessing, n = ${r.n}\na probe before read ${read(r.before_share)}, a fresh one after ${read(r.left_share)}, ${elsewhere} (0 is chance)${beats}\n${said}`;
}

// It opens on the place that verdicts look at first.
const placesOf = (holder) => distinct(trackedOf(holder).written.cells.map((c) => c.place));
const placeOf = (holder) => chosenValue(holder, "place") || [trackedOf(holder).written.rests, ...placesOf(holder)].find((p) => placesOf(holder).includes(p));
choices.written = [{ name: "place", label: "in the", options: (holder) => placesOf(holder).map((p) => [p, p]), first: placeOf }];
const WAYS = { shift: ["circle", 0], moved: ["triangle", 4], swap: ["square", -4] }; // the mark, and how far beside the others it stands
kinds.written = (holder, width) => {
  const { cells: all, n, position, rests } = trackedOf(holder).written;
  const place = placeOf(holder), cells = all.filter((c) => c.place === place);
  const most = Math.max(...cells.map((c) => c.by.length));
  const { svg, x, y } = plane(width, `Answers that follow another state, written in the ${place} after input ${position}. ${cells.map((c) => `${c.how}: ${c.now ? c.now[0].toFixed(2) : "unknown"} at once, ${c.later ? c.later[0].toFixed(2) : "unknown"} later`).join("; ")}.`, Array.from({ length: most }, (_, i) => String(i)), "inputs after the state was written", 230);
  // Of how many answers a share is: those that would be other ones, fewer in some places than there are pairs of documents.
  const told = (c, i) => c.told[i] ?? null;
  const styleOf = (k) => `${colourClass(k)} dash${k} way${k}`;
  cells.forEach((c, k) => {
    const [mark, aside] = WAYS[c.how];
    drawLine(svg, c.by, (i) => x(i) + aside, y, styleOf(k), (i, v) => `${c.how}: ${c.about}\n${i} inputs later ${format.percent(v)} of answers follow, ${told(c, i) === null ? `of at most ${n}: how many was not kept` : `n = ${told(c, i)}`}\nat once ${c.now ? estimated(c.now, format.percent) : "cannot be told"}\nlater ${c.later ? estimated(c.later, format.percent) : "cannot be told"}`, mark);
  });
  const rows = cells.flatMap((c) => c.by.map((v, i) => ({ place: c.place, how: c.how, distance: i, follows: v, n: told(c, i), pairs: n })));
  const keys = legend(cells.map((c, k) => ({ name: `${c.how}: ${c.about}`, mark: node("g", {}, node("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: `line ${styleOf(k)}` }), shape(WAYS[c.how][0], 13, 7, 3.5, { class: `point ${styleOf(k)}` })) })));
  return { svg, rows, keys, note: `Written in the ${place}, after input ${position}. ${saidOfPlace(place, rests)}` };
};

function saidOfPlace(place, rests) {
  if (place === rests) return "Verdicts look first at what later answers do then.";
  const kept = place === "residual stream" ? " What recurrent states hold stays as it was, so that later answers need not follow." : "";
  return `Verdicts look first at what is written in the ${rests}.${kept}`;
}

choices.recovered = [{ name: "read", label: "read", options: () => [["later", "behind it"], ["same", "at that position"]] }];
kinds.recovered = (holder, width) => {
  const found = trackedOf(holder).recovered;
  const which = chosenValue(holder, "read") || "later";
  const gutter = 10 + Math.max(...found.sites.map((s) => wide(s)));
  const cell = Math.min(46, (width - gutter - 4) / found.positions.length);
  const svg = canvas(width, 20 + CELL_HEIGHT * found.sites.length + 32, `Share of the answer that comes back when the unchanged document's activation is put in, by boundary and position. ${found.sites.map((s, i) => `${s}: ${found[which][i].map((v) => (v === null ? "none" : v.toFixed(2))).join(", ")}`).join("; ")}.`);
  const rows = [];
  [...found.sites].reverse().forEach((site, k) => {
    const i = found.sites.length - 1 - k;
    svg.append(words(gutter - 6, 8 + k * CELL_HEIGHT + 16, site, { "text-anchor": "end", class: "soft-text" }));
    found[which][i].forEach((v, j) => {
      const [low, high] = [found[`${which}_low`][i][j], found[`${which}_high`][i][j]];
      const tip = `${site}, input ${found.positions[j]}\n${v === null ? "no difference to bring back" : `${format.number(v)}${between(low, high, format.number)} comes back`}, n = ${found.n}`;
      svg.append(...cellMark(gutter + j * cell, 8 + k * CELL_HEIGHT, cell, v, v === null ? "–" : cell >= 28 ? v.toFixed(2).replace("-", "−") : "", tip, v === null ? "none dashed" : ""));
      rows.push({ place: site, input: found.positions[j], read: which, share: v, low, high, n: found.n });
    });
  });
  found.positions.forEach((p, j) => { if (cell >= 18 || !(j % 4)) svg.append(words(gutter + (j + 0.5) * cell, 8 + found.sites.length * CELL_HEIGHT + 14, p, { "text-anchor": "middle", class: "soft-text" })); });
  svg.append(words(gutter + (found.positions.length * cell) / 2, 8 + found.sites.length * CELL_HEIGHT + 30, "input", { "text-anchor": "middle", class: "soft-text" }));
  return { svg, rows, note: `Input ${found.position} was changed; the activation of the unchanged document is put in at one place.` };
};

// All models of a task in one map: rows are series, columns what was measured, numbers medians over seeds.
const TRACKED = [
  ...[1, 2, 4, 8].map((times) => [times === 1 ? "last answer" : `last answer, ${times} x`, (t) => t.lengths?.find((one) => one.times === times)?.last[0]]),
  ["read after the middle block", (t) => t.probes?.lines[0].readability[t.probes.at.length >> 1]],
  ["lost when erased", (t) => { const spoken = (t.erasures?.rows ?? []).filter((r) => r.speaks && r.damage !== null); return spoken.length ? Math.max(...spoken.map((r) => r.damage)) : undefined; }],
  ["answer follows", (t) => t.written?.cells.find((c) => c.how === "shift")?.now?.[0]],
  ["later ones follow", (t) => { const c = t.written?.cells.filter((one) => one.how === "shift") ?? []; return (c.find((one) => one.place === "stream and states") ?? c[0])?.later?.[0]; }],
];
kinds.tracked = (holder, width) => {
  const task = page.overview.tasks[holder.dataset.task];
  const runs = shownOf(task).filter((i) => page.overview.models[i].chosen && page.details.models[i].tracked);
  const groups = groupBy(runs, (i) => `${page.overview.models[i].series} d=${page.overview.models[i].width}`);
  const rows = [];
  for (const [name, members] of groups) for (const [what, of] of TRACKED) {
    const found = members.map((i) => of(page.details.models[i].tracked)).filter((v) => v !== undefined && v !== null);
    if (found.length) rows.push({ series: name, what, median: median(found), lowest: Math.min(...found), highest: Math.max(...found), seeds: found.length });
  }
  const columns = TRACKED.map(([what]) => what).filter((what) => rows.some((r) => r.what === what));
  const names = [...groups.keys()];
  const gutter = Math.min(0.4 * width, 12 + Math.max(20, ...names.map((s) => wide(s, 11, 650))));
  const cell = Math.min(110, (width - gutter - 4) / Math.max(1, columns.length));
  const below = 14 + 0.5 * Math.max(40, ...columns.map((c) => wide(c)));
  const verdicts = (name) => `verdicts: ${[...groupBy(groups.get(name), (i) => page.overview.models[i].mechanism)].map(([m, all]) => `${m} ${all.length}`).join(", ")}`;
  const svg = canvas(width, 8 + 2 * CELL_HEIGHT * names.length + below, `Tracked states by model. ${rows.map((r) => `${r.series}, ${r.what}: ${r.median.toFixed(2)}`).join("; ")}.`);
  names.forEach((name, i) => {
    const top = 8 + 2 * i * CELL_HEIGHT;
    svg.append(words(gutter - 6, top + 16, name, { "text-anchor": "end", class: "strong-text" }), words(Math.min(gutter, Math.max(0, width - wide(verdicts(name)))), top + CELL_HEIGHT + 14, verdicts(name), { class: "soft-text" }));
    for (const r of rows.filter((one) => one.series === name)) {
      const tip = `${name}: ${r.what}\nmedian ${format.number(r.median)}, from ${format.number(r.lowest)} to ${format.number(r.highest)}, ${r.seeds} seed${r.seeds > 1 ? "s" : ""}`;
      svg.append(...ofSeeds(r.seeds, cellMark(gutter + columns.indexOf(r.what) * cell, top, cell, r.median, r.median.toFixed(2).replace("-", "−"), tip)));
    }
  });
  columns.forEach((what, j) => {
    const [x, y] = [gutter + (j + 0.5) * cell + 6, 8 + 2 * CELL_HEIGHT * names.length + 10];
    svg.append(words(x, y, what, { class: "soft-text", transform: `rotate(-28 ${x} ${y})`, "text-anchor": "end" }));
  });
  return { svg, rows, note: runs.length ? "Medians over seeds, each with its best learning rate on the dev set; single seeds are in italics." : "The filters leave no model.", stamp: stampOf(rows) };
};
