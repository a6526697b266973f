// Filters: one for everything that varied between the models of the page, and for what was found.
const filters = { facets: [], left: null };
const CHIPS = 8;

const fields = { architecture: (m) => m.architecture, width: (m) => m.width, "learning rate": (m) => m.lr, seed: (m) => m.seed };
const OWN = ["model.width", "train.lr", "seed"];

function facetsOf(models) {
  const paths = distinct(models.flatMap((m) => Object.keys(m.settings))).filter((path) => !OWN.includes(path));
  const all = { ...fields, ...Object.fromEntries(paths.map((path) => [path, (m) => m.settings[path] ?? null])), mechanism: (m) => m.mechanism, training: (m) => m.outcome };
  return Object.entries(all).map(([name, of]) => {
    const values = distinct(models.map(of)).sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
    return { name, of, values, off: new Set() };
  }).filter((facet) => facet.values.length > 1 && (["architecture", "mechanism", "training"].includes(facet.name) || !impliedBy(models, facet.of)));
}

// Whether the architecture says it already: a filter for it would be the same filter again.
const impliedBy = (models, of) => [...groupBy(models, (m) => m.architecture).values()].every((peers) => distinct(peers.map(of)).length === 1);

// Numbers of the models of a task that the filters leave.
const shownOf = (task) => task.models.filter((i) => filters.left.has(i));

function refilter() {
  const models = page.overview.models;
  filters.left = new Set([...models.keys()].filter((i) => filters.facets.every((f) => !f.off.has(f.of(models[i])))));
  const said = document.getElementById("shown");
  if (said) said.textContent = filters.left.size === models.length ? `all ${models.length} models` : `${filters.left.size} of ${models.length} models`;
}

function buildFilters(changed) {
  filters.facets = facetsOf(page.overview.models);
  refilter();
  if (!filters.facets.length) return;
  const form = document.getElementById("filters");
  for (const facet of filters.facets) form.append(facet.values.length <= CHIPS ? chips(facet, changed) : menu(facet, changed));
  const all = html("button", { type: "button" }, "Show all");
  all.addEventListener("click", () => {
    for (const facet of filters.facets) facet.off.clear();
    for (const box of form.querySelectorAll("input")) box.checked = true;
    for (const select of form.querySelectorAll("select")) select.value = "";
    changed();
  });
  form.append(html("span", { class: "shown" }, html("span", { id: "shown", role: "status" }), " ", all));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  recallFilters(form);
  refilter();
}

// What is filtered out stands in the address, so that a link shows what its sender saw.
function rememberFilters() {
  const off = filters.facets.filter((f) => f.off.size).map((f) => [f.name, [...f.off].map(format.setting)]);
  history.replaceState(null, "", off.length ? `#without=${encodeURIComponent(JSON.stringify(off))}` : "#");
}

function recallFilters(form) {
  let off = [];
  try {
    off = JSON.parse(decodeURIComponent(location.hash.slice("#without=".length)) || "[]");
  } catch {
    return; // an address that somebody else wrote
  }
  for (const [name, values] of Array.isArray(off) ? off : []) {
    const facet = filters.facets.find((f) => f.name === name);
    for (const value of facet?.values ?? []) if (values.includes(format.setting(value))) facet.off.add(value);
  }
  filters.facets.forEach((facet, i) => {
    const fieldset = form.querySelectorAll("fieldset")[i];
    fieldset.querySelectorAll("input").forEach((box, k) => { box.checked = !facet.off.has(facet.values[k]); });
    const left = facet.values.filter((value) => !facet.off.has(value));
    const select = fieldset.querySelector("select");
    if (select && left.length === 1) select.value = facet.values.indexOf(left[0]);
  });
}

function chips(facet, changed) {
  const boxes = facet.values.map((value) => {
    const box = html("input", { type: "checkbox", checked: "" });
    box.addEventListener("change", () => {
      facet.off[box.checked ? "delete" : "add"](value);
      changed();
    });
    return html("label", { class: "chip" }, box, html("span", {}, format.setting(value)));
  });
  return html("fieldset", {}, html("legend", {}, facet.name), ...boxes);
}

function menu(facet, changed) {
  const select = html("select", {}, html("option", { value: "" }, `all ${facet.values.length}`), ...facet.values.map((value, i) => html("option", { value: i }, format.setting(value))));
  select.addEventListener("change", () => {
    facet.off = new Set(select.value === "" ? [] : facet.values.filter((_, i) => i !== Number(select.value)));
    changed();
  });
  return html("fieldset", {}, html("legend", {}, facet.name), html("label", {}, html("span", { class: "unseen" }, facet.name), select));
}
