// A figure's frame: what it is called, its choices, its downloads, and when it is drawn.
// A kind draws itself: (holder, width) => { svg, rows, keys, note, stamp }, with the rows its CSV holds.
const kinds = {};
const choices = {}; // kind -> [{ name, label, options(holder), first(holder) }]: the first option is chosen unless `first` names another

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
    if (choice.first) select.value = choice.first(holder);
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
    holder.querySelector(".under").replaceChildren(...[drawn.keys, ...note].flat().filter(Boolean));
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

// Downloads. A picture outside the page has no style sheet, no heading and no legend, so all of them are written into it.
const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "paint-order", "text-anchor"];
function styled(element) {
  const copy = element.cloneNode(true);
  const [from, to] = [element, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of STYLED) to[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "data-tip"]) to[i].removeAttribute(name);
  });
  return copy;
}

const HEADING = 28, KEY_LINE = 19, MARGIN = 12;
function standalone(holder) {
  const svg = holder.querySelector("svg.drawn");
  const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const text = { "font-family": getComputedStyle(svg).fontFamily, "font-size": 13 };
  const drawn = styled(svg);
  drawn.setAttribute("y", HEADING);
  let line = HEADING + height + KEY_LINE;
  const keys = [...holder.querySelectorAll("ul.keys")].flatMap((list) => {
    let from = 0;
    const entries = [...list.children].map((entry) => {
      const mark = entry.querySelector("svg"), name = entry.textContent.trim(), before = mark ? 32 : 0, size = before + wide(name, 13);
      if (from > 0 && from + size > width) [from, line] = [0, line + KEY_LINE];
      const made = node("g", { transform: `translate(${from} ${line})` }, words(before, 0, name, { ...text, fill: colour("--soft") }));
      if (mark) made.append(node("g", { transform: "translate(0 -11)" }, ...[...mark.children].map(styled)));
      from += size + 18;
      return made;
    });
    line += KEY_LINE;
    return entries;
  });
  const title = titleOf(holder);
  const whole = [Math.max(width, wide(title, 14, 650) + 8) + 2 * MARGIN, (keys.length ? line - 8 : HEADING + height) + 2 * MARGIN];
  return node("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `${-MARGIN} ${-MARGIN} ${whole[0]} ${whole[1]}`, width: whole[0], height: whole[1] },
    node("rect", { x: -MARGIN, y: -MARGIN, width: whole[0], height: whole[1], fill: colour("--card") }),
    words(0, 13, title, { ...text, "font-size": 14, "font-weight": 650, fill: colour("--ink") }), drawn, ...keys);
}

// What is chosen belongs to the title; whose emergence it is stands in the figure.
function titleOf(holder) {
  const number = holder.dataset.model;
  const chosen = [...holder.querySelectorAll("select")].filter((select) => select.name !== "watched")
    .map((select) => `${select.name === "against" ? "against " : ""}${select.selectedOptions[0].textContent}`);
  return `${holder.dataset.title}${number === undefined ? "" : `: ${page.overview.models[number].label}`}${chosen.length ? ` (${chosen.join(", ")})` : ""}`;
}

// Neither decode() nor toBlob(): both wait for the page to be painted next, which may be long after the click.
async function asPng(svg) {
  const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
  const image = new Image();
  const loaded = new Promise((resolve, reject) => Object.assign(image, { onload: resolve, onerror: reject }));
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  await loaded;
  const sheet = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  sheet.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  const bytes = atob(sheet.toDataURL("image/png").split(",")[1]);
  return new Blob([Uint8Array.from(bytes, (c) => c.charCodeAt(0))], { type: "image/png" });
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
  if (kind === "CSV") save(`${name}.csv`, csvOf(holder.rows), "text/csv");
  else if (kind === "SVG") save(`${name}.svg`, new XMLSerializer().serializeToString(standalone(holder)), "image/svg+xml");
  else save(`${name}.png`, await asPng(standalone(holder)), "image/png");
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
