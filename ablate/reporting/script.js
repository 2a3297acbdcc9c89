// What a page does beyond being read: charts are drawn, tables are sorted. Without it, tables stay.
"use strict";

const specs = JSON.parse(document.getElementById("charts").textContent);

async function draw(place) {
  const spec = { ...specs[place.dataset.chart], width: "container" };
  // Inside the place, whose name and role Vega would replace by its own.
  const inside = place.appendChild(document.createElement("div"));
  // ast: expressions are interpreted, as the page's policy admits no code but its own.
  await vegaEmbed(inside, spec, { actions: false, renderer: "svg", ast: true, defaultStyle: false });
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const down = head.ariaSort === "ascending";
      heads.forEach((other) => (other.ariaSort = "none"));
      head.ariaSort = down ? "descending" : "ascending";
      const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column], down ? -1 : 1));
      body.append(...rows);
    });
  });
}

// Empty cells last, whichever way; numbers by their value.
function compare(a, b, sign) {
  const [s, t] = [a.textContent.trim(), b.textContent.trim()];
  if (!s || !t) return (s ? 0 : 1) - (t ? 0 : 1);
  if (a.dataset.key && b.dataset.key) return sign * (a.dataset.key - b.dataset.key);
  return sign * s.localeCompare(t, "en", { numeric: true });
}

document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
document.querySelectorAll("figure details").forEach((details) => (details.open = false));
Promise.all([...document.querySelectorAll("[data-chart]")].map(draw)).then(() => {
  document.documentElement.dataset.drawn = "true";
});
