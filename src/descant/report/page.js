"use strict";
// Charts are drawn one after the other, so that the page answers from the first moment.
const specs = JSON.parse(document.getElementById("specs").textContent);
const panels = [...document.querySelectorAll(".panel")];
const views = new Map();

async function draw(panel) {
  try {
    const drawn = await vegaEmbed(panel.querySelector(".chart"), specs[panel.dataset.spec], { actions: false, renderer: "svg" });
    views.set(panel, drawn.view);
    panel.dataset.drawn = "yes";
  } catch (error) {
    panel.classList.add("failed");
    panel.textContent = "This chart could not be drawn: " + error.message;
    console.error(error);
  }
}

async function drawAll() {
  for (const panel of panels) {
    await draw(panel);
    await new Promise((next) => setTimeout(next, 0));
  }
  document.documentElement.dataset.drawn = String(views.size);
}

// A method is hidden in every chart of its experiment.
function toggle(section) {
  const hidden = [...section.querySelectorAll('.legend [aria-pressed="false"]')].map((b) => b.dataset.method);
  for (const panel of section.querySelectorAll(".panel")) {
    const view = views.get(panel);
    if (panel.dataset.of !== undefined) panel.hidden = hidden.includes(panel.dataset.of);
    else if (view && specs[panel.dataset.spec].params) view.signal("hidden", hidden).runAsync();
  }
}

function sort(heading) {
  const table = heading.closest("table"), body = table.tBodies[0];
  const column = [...heading.parentNode.children].indexOf(heading);
  const falling = heading.getAttribute("aria-sort") !== "descending";
  for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value;
  const order = (a, b) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined); // what is missing comes last
    const [x, y] = [Number(a), Number(b)];
    const rising = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, undefined, { numeric: true }) : x - y;
    return falling ? -rising : rising;
  };
  body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const section = button.closest("section");
  if (button.dataset.method !== undefined) {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    toggle(section);
  } else if (button.dataset.tab) {
    for (const tab of section.querySelectorAll("[data-tab]")) tab.setAttribute("aria-pressed", String(tab === button));
    for (const table of section.querySelectorAll("[data-rule]")) table.hidden = table.dataset.rule !== button.dataset.tab;
  } else if (button.closest("table.sortable")) sort(button.closest("th"));
});

document.addEventListener("input", (event) => {
  if (event.target.dataset.filter === undefined) return;
  const wanted = event.target.value.trim().toLowerCase();
  const rows = event.target.closest("details").querySelectorAll("tbody tr");
  for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
});

window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { if (!d.querySelector("pre")) d.open = true; }));
drawAll();
