// A figure's frame: what it is called, its choices, its downloads, and when it is drawn.
// A kind draws itself: (holder, width) => { svg, rows, keys, note, stamp }, with the rows its CSV holds.
const kinds = {};
const choices = {}; // kind -> [{ name, label, options(holder) }]

const chosenValue = (holder, name) => holder.querySelector(`select[name="${name}"]`)?.value ?? "";

function frame(holder) {
  if (holder.querySelector(".head")) return;
  const title = holder.dataset.title;
  const tools = html("span", { class: "tools", role: "group", "aria-label": `Download: ${title}` });
  for (const kind of ["SVG", "PNG", "CSV"]) {
    const button = html("button", { type: "button", "aria-label": `${kind} of ${title}` }, kind);
    button.addEventListener("click", () => download(holder, kind));
    tools.append(button);
  }
  const controls = html("span", { class: "controls" });
  for (const choice of choices[holder.dataset.kind] ?? []) {
    const options = choice.options(holder);
    if (options.length < 2) continue;
    const select = html("select", { name: choice.name }, ...options.map(([value, name]) => html("option", { value }, name)));
    select.addEventListener("change", () => draw(holder));
    controls.append(html("label", {}, `${choice.label} `, select));
  }
  holder.replaceChildren(html("div", { class: "head" }, html("span", { class: "title" }, title), html("span", { class: "stamp", hidden: "" }), controls, tools),
    html("div", { class: "canvas" }), html("div", { class: "under" }));
}

function draw(holder) {
  frame(holder);
  const canvas = holder.querySelector(".canvas");
  const width = Math.max(240, Math.floor(canvas.clientWidth));
  try {
    const drawn = kinds[holder.dataset.kind](holder, width);
    holder.rows = drawn.rows;
    canvas.replaceChildren(drawn.svg);
    const stamp = holder.querySelector(".head > .stamp");
    stamp.textContent = drawn.stamp ?? "";
    stamp.hidden = !drawn.stamp;
    const note = drawn.note ? [html("p", { class: "small soft" }, drawn.note)] : [];
    holder.querySelector(".under").replaceChildren(...[drawn.keys, ...note].filter(Boolean));
    holder.dataset.drawn = width;
  } catch (error) {
    canvas.replaceChildren(html("p", { class: "failure" }, `This figure could not be drawn: ${error.message}`));
    console.error(error);
  }
}

const inFold = (holder) => holder.closest("details:not([open])");
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting && !target.dataset.drawn) draw(target);
}, { rootMargin: "400px" });

// Few figures are drawn at once, so that whoever prints or saves the page has them all; many when they come into sight.
const FEW = 30;
function watch(root) {
  const holders = [...root.querySelectorAll(".figure")].filter((holder) => !holder.dataset.drawn);
  for (const holder of holders) {
    if (!inFold(holder) && holders.length <= FEW) draw(holder);
    else seen.observe(holder);
  }
}

function redraw(which = () => true) {
  for (const holder of document.querySelectorAll(".figure[data-drawn]")) if (which(holder)) draw(holder);
}

// Downloads. An SVG outside the page has no style sheet, so what the page's says is written into it.
const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "paint-order", "text-anchor"];
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const [from, to] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of STYLED) to[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "data-tip"]) to[i].removeAttribute(name);
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const background = getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
  copy.prepend(node("rect", { width: "100%", height: "100%", fill: background }));
  return new XMLSerializer().serializeToString(copy);
}

async function asPng(svg) {
  const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
  await image.decode();
  const sheet = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  sheet.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  return new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
}

function save(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function download(holder, kind) {
  const number = holder.dataset.model;
  const of = number === undefined ? "" : `-${page.overview.models[number].label}`;
  const name = `${holder.dataset.kind}${of}`.replace(/[^\w.=+-]+/g, "_");
  const svg = holder.querySelector("svg.drawn");
  if (kind === "CSV") save(`${name}.csv`, csvOf(holder.rows), "text/csv");
  else if (kind === "SVG") save(`${name}.svg`, standalone(svg), "image/svg+xml");
  else save(`${name}.png`, await asPng(svg), "image/png");
}

// Marks say more when pointed at; with the keyboard, the arrow keys go from mark to mark of a focused figure.
const tip = document.getElementById("tip");
function show(mark, x, y) {
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 8))}px`;
  tip.style.top = `${y + height + 20 > innerHeight ? y - height - 10 : y + 14}px`;
}
document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  if (mark) show(mark, event.clientX, event.clientY);
  else tip.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") tip.hidden = true;
  const svg = event.target.closest?.("svg.drawn");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!svg || !step) return;
  const marks = [...svg.querySelectorAll("[data-tip]")];
  if (!marks.length) return;
  event.preventDefault();
  svg.at = ((svg.at ?? (step > 0 ? -1 : marks.length)) + step + marks.length) % marks.length;
  const box = marks[svg.at].getBoundingClientRect();
  show(marks[svg.at], box.right, box.bottom);
  document.getElementById("said").textContent = marks[svg.at].dataset.tip;
});
document.addEventListener("focusout", () => { tip.hidden = true; });
