"use strict";
// A click on a column's head sorts by it, the second click the other way; empty cells stay at the end.
const order = new Intl.Collator("en", {numeric: true, sensitivity: "base"});
function sortBy(head, place) {
  const body = head.closest("table").tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  const isNumber = head.classList.contains("number");
  const keyed = Array.from(body.rows, (row, at) => {
    const cell = row.cells[place];
    const text = isNumber ? cell.dataset.key : cell.textContent.trim();
    return {row, at, empty: !text || text === "\u2013", key: isNumber ? Number(text) : text};
  });
  keyed.sort((a, b) => {
    if (a.empty || b.empty) return a.empty - b.empty || a.at - b.at;
    const by = isNumber ? (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) : order.compare(a.key, b.key);
    return (down ? -by : by) || a.at - b.at;
  });
  body.append(...keyed.map((k) => k.row));
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
}
for (const head of document.querySelectorAll("section:not(#glance) table.sorts thead th")) {
  const button = document.createElement("button");  // so that keys reach it; without a script there is nothing to press
  button.type = "button";
  button.title = "Sort by this column";
  button.append(...head.childNodes);
  head.append(button);
  head.addEventListener("click", () => sortBy(head, head.cellIndex));
}
const folded = () => document.querySelectorAll("details:not([open])");
addEventListener("beforeprint", () => folded().forEach((d) => { d.open = true; d.dataset.wasFolded = ""; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-was-folded]").forEach((d) => {
  d.open = false;
  delete d.dataset.wasFolded;
}));
