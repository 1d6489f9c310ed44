// Rows that hold all words of the search field stay; a link to a row that is hidden ends the search.
const field = document.getElementById("search");
const searched = Array.from(document.querySelectorAll("table.searched tbody tr"), (row) => ({row, text: row.textContent.toLowerCase()}));
function search() {
  const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const {row, text} of searched) {
    row.hidden = !wanted.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  document.getElementById("count").textContent = wanted.length ? `${shown} of ${searched.length} rows` : "";
}
field.addEventListener("input", search);
addEventListener("hashchange", () => {
  const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (row && row.hidden) {
    field.value = "";
    search();
    row.scrollIntoView();
  }
});
