// What the page holds. Blocks are gzipped, and unpacked when somebody asks for them.
const unpacked = new Map();

function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function block(id) {
  if (!unpacked.has(id)) unpacked.set(id, document.getElementById(id) ? unpack(id).then(JSON.parse) : Promise.resolve({}));
  return unpacked.get(id);
}

// Set once, before anything is drawn: the numbers of all models, and those of single ones.
const page = { overview: null, details: null, later: null };

const format = {
  percent: (v) => `${(100 * v).toFixed(1)}%`,
  number: (v) => v.toFixed(3).replace(/^-(?=[0.]*$)/, "").replace("-", "−"),
  thousands: (v) => v.toLocaleString("en").replaceAll(",", "\u202f"),
  setting: (v) => (v === null ? "none" : typeof v === "number" ? (v !== 0 && Math.abs(v) < 0.001 ? Number(v.toPrecision(3)).toExponential() : String(Number(v.toPrecision(6)))) : String(v)),
};

const estimated = (e, form) => `${form(e[0])} [${form(e[1])}, ${form(e[2])}], n = ${e[3]}`;
const accuracyOf = (model) => (model.accuracy ? model.accuracy[0] : model.dev);
const distinct = (values) => [...new Set(values)];

const median = (values) => quantile(values, 0.5);

// Between the two nearest of the sorted values, as numpy does it.
function quantile(values, at) {
  const sorted = [...values].sort((a, b) => a - b);
  const place = at * (sorted.length - 1), below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

function csvOf(rows) {
  const columns = distinct(rows.flatMap(Object.keys));
  const cell = (v) => (v === null || v === undefined ? "" : /[",\n\r]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v));
  return [columns, ...rows.map((row) => columns.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

// The cells of a model's grid as rows; `wanted` says which sites.
function cellRows(number, slot, wanted = () => true) {
  const grid = page.details.models[number].grids[slot];
  const { sites, roles } = page.details.frames[grid.frame];
  const why = new Map(grid.why.map(([d, s, r, reason]) => [(d * sites.length + s) * roles.length + r, reason]));
  const rows = [];
  for (let at = 0; at < grid.status.length; at += 1) {
    const site = sites[Math.floor(at / roles.length) % sites.length];
    if (grid.status[at] === "." || !wanted(site)) continue;
    const share = (values) => (values[at] === null ? null : values[at] / 10000);
    rows.push({
      slot, direction: at < sites.length * roles.length ? "restore" : "break", site, role: roles[at % roles.length],
      share: share(grid.share), low: share(grid.low), high: share(grid.high), n: grid.n,
      status: { m: "measured", "-": "no path", "=": "same", x: "invalid" }[grid.status[at]], why: why.get(at) ?? "",
      code: grid.status[at],
    });
  }
  return rows;
}

// Tables over all models that the filters leave, for the buttons at the top.
const tables = {
  "cells.csv": (numbers) => numbers.flatMap((i) => Object.keys(page.details.models[i].grids).flatMap((slot) =>
    cellRows(i, slot).map(({ code, ...row }) => ({ run_id: page.overview.models[i].run_id, model: page.overview.models[i].label, ...row })))),
  "curves.csv": (numbers) => numbers.flatMap((i) => curveRows(i)),
  "emergence.csv": (numbers) => numbers.flatMap((i) => emergenceRows(i)),
};

function curveRows(i) {
  const { run_id, label } = page.overview.models[i];
  const curve = page.overview.curves[i];
  return curve.step.map((step, k) => ({ run_id, model: label, step, loss: curve.loss[k], accuracy: curve.accuracy[k], likelihood: curve.likelihood[k] }));
}

function emergenceRows(i) {
  const { run_id, label } = page.overview.models[i];
  return (page.overview.emergence[i] ?? []).flatMap((line) =>
    line.step.map((step, k) => ({ run_id, model: label, what: line.name, step, share: line.share[k], low: line.low[k], high: line.high[k], n: line.n })));
}
