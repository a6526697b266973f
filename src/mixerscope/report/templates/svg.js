// Drawing: elements, scales, axes. Colours are classes, so that light, dark and print are the style sheet's business.
function node(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function canvas(width, height, label) {
  return node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, tabindex: 0, class: "drawn" });
}

const words = (x, y, string, attributes = {}) => node("text", { x, y, ...attributes }, String(string));

// How wide a text will be, so that labels can be kept apart before they are drawn.
const ruler = document.createElement("canvas").getContext("2d");
function wide(string, size = 11, weight = 400) {
  ruler.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif`;
  return ruler.measureText(String(string)).width;
}

function scale([low, high], [from, to], logarithmic = false) {
  const place = logarithmic ? Math.log : (v) => v;
  const span = place(high) - place(low) || 1;
  return (value) => from + ((place(value) - place(low)) / span) * (to - from);
}

function ticks(low, high, count = 5) {
  const step = 10 ** Math.floor(Math.log10((high - low || 1) / count));
  const nice = [1, 2, 5, 10].map((m) => m * step).find((s) => (high - low) / s <= count) ?? step * 10;
  const found = [];
  for (let v = Math.ceil(low / nice) * nice; v <= high + nice / 1e6; v += nice) found.push(Number(v.toPrecision(12)));
  return found;
}

// Those of the values whose labels do not collide, the first always among them.
function apart(values, place, label, size = 11) {
  let last = -Infinity;
  return values.filter((value) => {
    const half = wide(label(value), size) / 2 + 3;
    if (place(value) - half < last) return false;
    last = place(value) + half;
    return true;
  });
}

function xAxis(values, place, y, label, title, [left, right]) {
  const shown = apart(values, place, label);
  return node("g", { class: "axis" },
    node("line", { x1: left, x2: right, y1: y, y2: y }),
    ...values.map((v) => node("line", { x1: place(v), x2: place(v), y1: y, y2: y + 4 })),
    ...shown.map((v) => words(place(v), y + 16, label(v), { "text-anchor": "middle" })),
    words((left + right) / 2, y + 32, title, { "text-anchor": "middle", class: "axis-title" }));
}

function yAxis(values, place, x, right, label) {
  return node("g", { class: "axis" }, ...values.flatMap((v) => [
    node("line", { class: "rule", x1: x, x2: right, y1: place(v), y2: place(v) }),
    words(x - 6, place(v) + 4, label(v), { "text-anchor": "end" })]));
}

// Points every few pixels of a line through these.
const along = (points) => points.flatMap(([x1, y1], i) => {
  const [x0, y0] = points[Math.max(0, i - 1)], count = Math.max(1, Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 4));
  return Array.from({ length: count }, (_, k) => [x0 + ((x1 - x0) * (k + 1)) / count, y0 + ((y1 - y0) * (k + 1)) / count]);
});

// A dashed line with its name above or below it: inside, and where least of what is drawn is in the way.
function baseline(y, [left, right], name, top, drawn = []) {
  const size = wide(name) + 8;
  const inner = Array.from({ length: 7 }, (_, k) => ["middle", left + ((right - left) * (k + 1)) / 8]).filter(([, x]) => x - size / 2 > left && x + size / 2 < right);
  const ends = [["end", right], ["start", left + 4], ...inner];
  const places = ends.flatMap(([end, x]) => (y - 4 < top + 8 ? [y + 12] : [y - 4, y + 12]).map((at) => {
    const from = x - { end: size, start: 4, middle: size / 2 }[end];
    return { end, x, at, hidden: drawn.filter(([px, py]) => px > from && px < from + size && py > at - 14 && py < at + 5).length };
  }));
  const { end, x, at } = places.reduce((best, one) => (one.hidden < best.hidden ? one : best));
  return node("g", { class: "baseline" }, node("line", { x1: left, x2: right, y1: y, y2: y }),
    words(x, at, name, { "text-anchor": end }));
}

const SHAPES = ["circle", "triangle", "square", "diamond", "cross", "down", "plus", "bar"];
function shape(kind, x, y, r, attributes = {}) {
  const d = {
    circle: `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0`,
    triangle: `M${x},${y - 1.2 * r}L${x + 1.1 * r},${y + 0.8 * r}H${x - 1.1 * r}Z`,
    down: `M${x},${y + 1.2 * r}L${x + 1.1 * r},${y - 0.8 * r}H${x - 1.1 * r}Z`,
    square: `M${x - 0.9 * r},${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}Z`,
    diamond: `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`,
    plus: `M${x - 1.2 * r},${y}h${2.4 * r}M${x},${y - 1.2 * r}v${2.4 * r}`,
    bar: `M${x - 1.2 * r},${y}h${2.4 * r}`,
    cross: `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`,
  }[kind];
  return node("path", { d, ...attributes, class: `${attributes.class ?? ""} shape ${["cross", "plus", "bar"].includes(kind) ? "stroked" : ""}` });
}

// Colour and dash of so many lines: seven colours that stay apart for everyone, then the same again, dashed.
const COLOURS = 7;
const colourClass = (i) => `c${i % COLOURS}`;
const lineClass = (i) => `${colourClass(i)} dash${Math.floor(i / COLOURS) % 3}`;

function legend(entries, of = "") {
  if (!entries.length) return null;
  return html("ul", { class: "keys" }, ...(of ? [html("li", {}, of)] : []), ...entries.map(({ mark, name }) => {
    const swatch = node("svg", { width: 26, height: 14, viewBox: "0 0 26 14", "aria-hidden": "true" }, mark);
    return html("li", {}, swatch, ` ${name}`);
  }));
}

const lineKey = (i, name) => ({ name, mark: node("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: `line ${lineClass(i)}` }) });
const shapeKey = (kind, name) => ({ name, mark: shape(kind, 13, 7, 4.5, { class: "grey" }) });
