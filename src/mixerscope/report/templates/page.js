"use strict";
const CHARTS = JSON.parse(document.getElementById("charts").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function theme() {
  const font = getComputedStyle(document.body).fontFamily;
  const text = { labelColor: colour("--soft"), titleColor: colour("--soft"), labelFont: font, titleFont: font };
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: { ...text, gridColor: colour("--line"), domainColor: colour("--edge"), tickColor: colour("--edge"), labelFontSize: 12 },
    legend: { ...text, labelFontSize: 12 },
    title: { color: colour("--soft"), font },
    range: { heatmap: [0, 1, 2, 3].map((i) => colour(`--ramp-${i}`)) },
  };
}

async function draw(holder) {
  const spec = structuredClone(CHARTS[holder.id]);
  for (const param of spec.params ?? []) param.value = colour(`--${param.name.replace("_", "-")}`);
  // A chart carries its light colours so that it can be used outside the page; in the page, the page decides.
  delete spec.config;
  const actions = { export: true, source: false, compiled: false, editor: false };
  try {
    const drawn = await vegaEmbed(holder, spec, { renderer: "svg", config: theme(), actions, downloadFileName: holder.id });
    holder.finalize = () => drawn.finalize();
    holder.dataset.drawn = "yes";
  } catch (error) {
    const note = document.createElement("p");
    note.className = "failure";
    note.textContent = `This chart could not be drawn: ${error.message}`;
    holder.replaceChildren(note);
  }
}

function drawVisible() {
  for (const holder of document.querySelectorAll(".chart")) {
    const folded = holder.closest("details.fold:not([open])");
    if (!folded && !holder.dataset.drawn) draw(holder);
  }
}

document.addEventListener("toggle", drawVisible, true);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const holder of document.querySelectorAll(".chart[data-drawn]")) {
    holder.finalize();
    delete holder.dataset.drawn;
  }
  drawVisible();
});

function unpack(file) {
  const packed = document.getElementById(file).textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
}

for (const button of document.querySelectorAll("button[data-file]")) {
  button.addEventListener("click", async () => {
    const url = URL.createObjectURL(new Blob([await unpack(button.dataset.file)], { type: "text/csv" }));
    const link = Object.assign(document.createElement("a"), { href: url, download: button.dataset.file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
}
drawVisible();
