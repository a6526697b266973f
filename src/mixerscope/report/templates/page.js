"use strict";
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function unpack(id) {
  const packed = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
}

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

async function draw(holder, charts) {
  const spec = structuredClone(charts[holder.id]);
  for (const param of spec.params ?? []) param.value = colour(`--${param.name.replace("_", "-")}`);
  // A chart carries its light colours so that it can be used outside the page; in the page, the page decides.
  delete spec.config;
  const actions = { export: true, source: false, compiled: false, editor: false };
  const drawn = await vegaEmbed(holder, spec, { renderer: "svg", config: theme(), actions, downloadFileName: holder.id });
  holder.finalize = () => drawn.finalize();
}

function say(holder, error) {
  const note = document.createElement("p");
  note.className = "failure";
  note.textContent = `This chart could not be drawn: ${error.message}`;
  holder.replaceChildren(note);
}

let charts = null;
async function drawVisible() {
  for (const holder of document.querySelectorAll(".chart")) {
    if (holder.closest("details.fold:not([open])") || holder.dataset.drawn) continue;
    holder.dataset.drawn = "begun";
    try {
      charts ??= unpack("charts").then((blob) => blob.text()).then(JSON.parse);
      await draw(holder, await charts);
      holder.dataset.drawn = "yes";
    } catch (error) {
      say(holder, error);
    }
    // Hundreds of charts take a while: between two of them the page answers to its reader.
    await new Promise((resolve) => setTimeout(resolve));
  }
}

document.addEventListener("toggle", drawVisible, true);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const holder of document.querySelectorAll(".chart")) {
    holder.finalize?.();
    delete holder.dataset.drawn;
  }
  drawVisible();
});

for (const button of document.querySelectorAll("button[data-file]")) {
  button.addEventListener("click", async () => {
    const url = URL.createObjectURL(new Blob([await unpack(button.dataset.file)], { type: "text/csv" }));
    const link = Object.assign(document.createElement("a"), { href: url, download: button.dataset.file });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  });
}
drawVisible();
