// The page as a whole: which cards and rows are shown, what buttons do, when it is ready.
const CARDS = 6, ROWS = 40;
const made = { cards: new Map(), rows: new Map() };

function fromText(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text.trim();
  return [...holder.content.children];
}

// The elements of a model: those of the page, or made from their text when they are first wanted.
function elements(kind, number) {
  if (!made[kind].has(number)) made[kind].set(number, fromText(page.later?.[kind]?.[number] ?? ""));
  return made[kind].get(number);
}

function collect() {
  for (const card of document.querySelectorAll(".cards > .card")) made.cards.set(Number(card.dataset.model), [card]);
  for (const row of document.querySelectorAll("tbody.rows > tr")) {
    const number = Number(row.dataset.model);
    made.rows.set(number, [...(made.rows.get(number) ?? []), row]);
  }
}

// Which cards a section shows: those in the order of the page, that the filters leave, and the ones asked for before.
const sections = new Map();
function sectionState(section) {
  if (!sections.has(section)) sections.set(section, { order: orderOf(section), cards: CARDS, rows: ROWS, asked: [] });
  return sections.get(section);
}

function orderOf(section) {
  const task = page.overview.tasks[section.dataset.task];
  const first = [...section.querySelectorAll(".cards > .card")].map((card) => Number(card.dataset.model));
  return distinct([...first, ...task.models]);
}

function arrange(section) {
  const state = sectionState(section);
  const left = state.order.filter((i) => filters.left.has(i));
  const asked = state.asked.filter((i) => filters.left.has(i));
  const cards = distinct([...asked, ...left]).slice(0, Math.max(state.cards, asked.length));
  section.querySelector(".cards").replaceChildren(...cards.flatMap((i) => elements("cards", i)));
  more(section.querySelector(".more"), cards.length, left.length, "models", () => { state.cards += CARDS; });
  const numbers = page.overview.tasks[section.dataset.task].models.filter((i) => filters.left.has(i));
  section.querySelector(".rows").replaceChildren(...numbers.slice(0, state.rows).flatMap((i) => elements("rows", i)));
  more(section.querySelector(".more-rows"), Math.min(state.rows, numbers.length), numbers.length, "rows", () => { state.rows *= 5; });
  watch(section.querySelector(".cards"));
}

function more(line, shown, all, what, enlarge) {
  line.hidden = shown >= all;
  const button = html("button", { type: "button" }, `Show more ${what}`);
  button.addEventListener("click", async () => {
    page.later ??= await block("later");
    enlarge();
    arrange(line.closest("section"));
  });
  line.replaceChildren(`${shown} of ${all} ${what} are shown. `, button);
}

const allSections = () => [...document.querySelectorAll("section[data-task]")];

async function filtersChanged() {
  refilter();
  rememberFilters();
  page.later ??= await block("later");
  for (const section of allSections()) arrange(section);
  redraw((holder) => holder.dataset.task !== undefined);
}

async function openModel(number, from) {
  page.later ??= await block("later");
  const section = from.closest("section");
  const state = sectionState(section);
  state.asked = distinct([number, ...state.asked]).slice(0, CARDS);
  arrange(section);
  const [card] = elements("cards", number);
  card.setAttribute("tabindex", "-1");
  card.scrollIntoView({ block: "start" });
  card.focus({ preventScroll: true });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button");
  if (button?.dataset.open) openModel(Number(button.dataset.open), button);
  if (button?.dataset.file) {
    const name = button.dataset.file;
    save(name, name === "summary.csv" ? await unpack(name) : csvOf(tables[name]([...filters.left])), "text/csv");
  }
});

let resized = 0;
new ResizeObserver(() => {
  clearTimeout(resized);
  resized = setTimeout(() => redraw((holder) => {
    const width = holder.querySelector(".canvas").clientWidth;
    return width > 0 && Math.abs(width - holder.dataset.drawn) > 8 && !matchMedia("print").matches;
  }), 120);
}).observe(document.body);

addEventListener("beforeprint", () => {
  for (const holder of document.querySelectorAll(".figure:not([data-drawn])")) if (!inFold(holder)) draw(holder);
});

// A page that is served asks now and then whether there is a newer one. Filters stay in the address, the place in mind.
const PLACE = "mixerscope-place";
function live() {
  const known = document.body.dataset.live;
  if (!known) return;
  const line = html("p", { class: "live small", role: "status" });
  document.querySelector("body > header").append(line);
  scrollTo(0, Number(sessionStorage.getItem(PLACE) ?? 0));
  sessionStorage.removeItem(PLACE);
  const look = async () => {
    try {
      const { page: newest, said } = await (await fetch("/state")).json();
      line.textContent = `Live: ${said}.`;
      if (newest !== known) {
        sessionStorage.setItem(PLACE, scrollY);
        location.reload();
      }
    } catch {
      line.textContent = "The server has gone; this is the last page it made.";
    }
  };
  look();
  setInterval(look, 2500);
}

(async () => {
  collect();
  [page.overview, page.details] = await Promise.all([block("overview"), block("details")]);
  page.overview.models.forEach((model, number) => { model.number = number; });
  buildFilters(filtersChanged);
  for (const section of allSections()) arrange(section);
  watch(document.getElementById("main"));
  live();
  requestAnimationFrame(() => setTimeout(() => {
    performance.mark("interactive");
    document.documentElement.dataset.ready = "yes";
  }));
})();
