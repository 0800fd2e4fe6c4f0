// Uses a page as a person would: what is left in `found`, and the errors that were said, is read by the test.
const errors = [], found = {};
window.onerror = (words) => { errors.push(String(words)); };
console.error = (...words) => { errors.push(words.join(" ")); };
const tick = () => new Promise((done) => setTimeout(done, 60));
const root = () => document.getElementById("explorer");
const lanes = () => root().querySelector("canvas");
const data = () => JSON.parse(document.getElementById("explorer-data").textContent);
function key(name, on = lanes()) {
  on.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));
}
function pointer(kind, x, y) {
  const box = lanes().getBoundingClientRect();
  lanes().dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: box.left + x, clientY: box.top + y }));
}
function middle(row) { // of the first event of the first row, where the whole run is shown
  const names = 118, heading = 24 + 22;
  return [names + (lanes().clientWidth - names) * (row.e[1] + row.e[2] / 2) / data().end, heading + 7];
}
window.addEventListener("load", async () => {
  try { await use(); } catch (error) { errors.push(String(error)); }
  document.body.dataset.result = JSON.stringify({ errors, ...found });
});
