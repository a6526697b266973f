// Heat maps: the shares of one model by site and role, and likelihoods by architecture and width as the paper prints them.
const CELL_HEIGHT = 24, NARROWEST = 34;
const PANELS = { restore: "restore: share brought back", break: "break: share taken away" };

const ramp = (share) => `q${Math.round(20 * Math.max(0, Math.min(1, share)))}`;

function cellMark(x, y, width, share, text, tip, kind = "") {
  const strong = share !== null && share > 0.6 ? "on-strong" : "on-weak";
  return [node("rect", { x: x + 0.5, y: y + 0.5, width: width - 1, height: CELL_HEIGHT - 1, class: `cell ${kind || ramp(share)}`, "data-tip": tip }),
    words(x + width / 2, y + CELL_HEIGHT / 2 + 4, text, { "text-anchor": "middle", class: `cell-text ${kind === "x" ? "alarm" : kind ? "on-weak" : strong}` })];
}

// A number of a single seed is in italics, and a figure of nothing else says so.
function ofSeeds(seeds, [rect, text]) {
  if (seeds === 1) text.setAttribute("font-style", "italic");
  return [rect, text];
}
const stampOf = (rows) => (rows.length && rows.every((row) => row.seeds === 1) ? "single seeds" : "");

kinds.map = (holder, width) => {
  const number = Number(holder.dataset.model);
  const { boundaries } = page.details.layouts[number];
  const all = holder.dataset.sites === "all";
  const rows = cellRows(number, holder.dataset.slot, (site) => all || boundaries.includes(site));
  const sites = distinct(rows.map((r) => r.site)), roles = distinct(rows.map((r) => r.role));
  const name = (site) => (all || !boundaries.includes(site) ? site : boundaries.indexOf(site) ? `after block ${boundaries.indexOf(site) - 1}` : "input");
  const gutter = Math.min(0.5 * width, Math.max(...sites.map((s) => wide(name(s), 11))) + 10);
  const beside = all && width > 2 * (gutter + 44 * roles.length);
  const room = (beside ? width / 2 : width) - gutter - 4;
  // Where there is no room for the numbers side by side, the figure is drawn wider than its place, which makes it smaller.
  const cell = Math.max(NARROWEST, Math.min(46, room / roles.length));
  const whole = beside ? width : Math.max(width, gutter + 4 + cell * roles.length);
  const slanted = Math.max(...roles.map((r) => wide(r, 11))) > cell - 4;
  const below = slanted ? 12 + 0.5 * Math.max(...roles.map((r) => wide(r, 11))) : 18;
  const panel = 20 + sites.length * CELL_HEIGHT;
  const height = beside ? panel + below : 2 * panel + 8 + below;
  const svg = canvas(whole, height, describeMap(number, holder.dataset.slot, rows, sites, name));
  Object.keys(PANELS).forEach((direction, p) => {
    const left = gutter + (beside ? (p * width) / 2 : 0), top = 20 + (beside ? 0 : p * (panel + 8));
    svg.append(words(left, top - 7, PANELS[direction], { class: "soft-text" }));
    if (!p || !beside) sites.forEach((site, i) => svg.append(words(gutter - 6, top + i * CELL_HEIGHT + 16, fitted(name(site), gutter), { "text-anchor": "end", class: "soft-text" })));
    for (const row of rows.filter((r) => r.direction === direction)) {
      const known = row.code === "m" && row.share !== null;
      const text = known ? row.share.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−") : page.overview.marks[row.code];
      const tip = `${row.site}, ${row.role}\n${known ? `share ${format.number(row.share)} [${format.number(row.low)}, ${format.number(row.high)}]` : row.status}, n = ${row.n}${row.why ? `\n${row.why}` : ""}`;
      const kind = known ? "" : { "-": "none dashed", "=": "none", x: "x", m: "none" }[row.code];
      svg.append(...cellMark(left + roles.indexOf(row.role) * cell, top + sites.indexOf(row.site) * CELL_HEIGHT, cell, known ? row.share : null, text, tip, kind));
    }
    if (p || beside) roles.forEach((role, i) => {
      const [x, y] = [left + (i + 0.5) * cell, top + sites.length * CELL_HEIGHT + 13];
      const turned = slanted ? { transform: `rotate(-30 ${x + 6} ${y})`, "text-anchor": "end", x: x + 6 } : { "text-anchor": "middle" };
      svg.append(words(x, y, role, { class: "soft-text", ...turned }));
    });
  });
  return { svg, rows: rows.map(({ code, ...row }) => row) };
};

// The end of a name, as much of it as there is room for.
function fitted(string, room) {
  let from = 0;
  while (from < string.length && wide(from ? `…${string.slice(from)}` : string) > room - 6) from += 1;
  return from ? `…${string.slice(from)}` : string;
}

function describeMap(number, slot, rows, sites, name) {
  const restored = rows.filter((r) => r.direction === "restore");
  const told = sites.map((site) => `${name(site)}: ${restored.filter((r) => r.site === site).map((r) => `${r.role} ${r.share === null ? r.status : r.share.toFixed(2)}`).join(", ")}`);
  return `Share restored in ${page.overview.models[number].label}, ${slot} corrupted. ${told.join("; ")}.`;
}

// Likelihood times 100: a panel for the original, the corrupted documents and each role restored; rows are series,
// columns widths; a number is the median over seeds of the best learning rate of each.
const printedSlots = (holder) => distinct(page.overview.tasks[holder.dataset.task].models.flatMap((i) => Object.keys(page.overview.printed[i])));
const printedSites = (holder) => distinct(page.overview.tasks[holder.dataset.task].models.flatMap((i) => Object.values(page.overview.printed[i]).flatMap((p) => Object.keys(p.restored))));
choices.printed = [
  { name: "slot", label: "corrupted", options: (holder) => printedSlots(holder).map((s) => [s, s]) },
  { name: "site", label: "restored", options: (holder) => printedSites(holder).map((s) => [s, s]) },
];

kinds.printed = (holder, width) => {
  const slot = chosenValue(holder, "slot") || printedSlots(holder)[0], site = chosenValue(holder, "site") || printedSites(holder)[0];
  const task = page.overview.tasks[holder.dataset.task];
  const runs = shownOf(task).map((i) => ({ ...page.overview.models[i], printed: page.overview.printed[i][slot] })).filter((m) => m.chosen && m.printed);
  const panels = [["original", (p) => p.original], [`${slot} corrupted`, (p) => p.corrupted],
    ...task.roles.map((role) => [`restored @ ${role}`, (p) => p.restored[site]?.[role]])];
  const series = distinct(runs.map((m) => m.series)), widths = distinct(runs.map((m) => m.width)).sort((a, b) => a - b);
  const rows = [];
  for (const [panel, value] of panels) for (const s of series) for (const w of widths) {
    const found = runs.filter((m) => m.series === s && m.width === w).map((m) => value(m.printed)).filter((v) => v !== undefined && v !== null);
    if (found.length) rows.push({ panel, series: s, width: w, median: median(found), lowest: Math.min(...found), highest: Math.max(...found), seeds: found.length });
  }
  return { svg: printedMaps(rows, panels.map(([name]) => name), series, widths, width), rows,
    note: runs.length ? `Likelihood of the answer times 100${site ? `, ${site} restored` : ""}: the median over seeds, each with its best learning rate on the dev set. Single seeds are in italics.` : "No run that the filters leave was patched.", stamp: stampOf(rows) };
};

function printedMaps(rows, panels, series, widths, width) {
  const gutter = Math.min(160, Math.max(20, ...series.map((s) => wide(s, 11))) + 10), cell = 42;
  const one = Math.max(widths.length * cell, ...panels.map((p) => wide(p, 11, 650))) + 14;
  const columns = Math.max(1, Math.floor((width - gutter) / one));
  const tall = 24 + series.length * CELL_HEIGHT + 24;
  const used = panels.filter((p) => rows.some((r) => r.panel === p));
  const svg = canvas(width, Math.max(1, Math.ceil(used.length / columns)) * tall, `Likelihood by series and width. ${rows.map((r) => `${r.panel}, ${r.series} at ${r.width}: ${(100 * r.median).toFixed(1)}`).slice(0, 60).join("; ")}.`);
  used.forEach((panel, p) => {
    const left = gutter + (p % columns) * one, top = 24 + Math.floor(p / columns) * tall;
    svg.append(words(left, top - 8, panel, { class: "strong-text" }));
    if (p % columns === 0) series.forEach((s, i) => svg.append(words(gutter - 6, top + i * CELL_HEIGHT + 16, fitted(s, gutter), { "text-anchor": "end", class: "soft-text" })));
    widths.forEach((w, i) => svg.append(words(left + (i + 0.5) * cell, top + series.length * CELL_HEIGHT + 14, w, { "text-anchor": "middle", class: "soft-text" })));
    for (const row of rows.filter((r) => r.panel === panel)) {
      const tip = `${row.series}, width ${row.width}, ${panel}\nmedian ${(100 * row.median).toFixed(1)}, from ${(100 * row.lowest).toFixed(1)} to ${(100 * row.highest).toFixed(1)}, ${row.seeds} seed${row.seeds > 1 ? "s" : ""}`;
      svg.append(...ofSeeds(row.seeds, cellMark(left + widths.indexOf(row.width) * cell, top + series.indexOf(row.series) * CELL_HEIGHT, cell, row.median, (100 * row.median).toFixed(1), tip)));
    }
  });
  return svg;
}
