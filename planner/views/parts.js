// What the moving part of a page says numbers with and makes its elements by.
"use strict";
const parts = (() => {
  const scaled = (value, units, base) => {
    let k = 0;
    while (Math.abs(value) >= base && k < units.length - 1) { value /= base; k += 1; }
    return `${Number(value.toPrecision(4))} ${units[k]}`;
  };
  const time = (us) => us && Math.abs(us) < 1 ? `${Number((us * 1e3).toPrecision(4))} ns` : scaled(us, ["µs", "ms", "s"], 1000);
  const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);

  const make = (name, settings = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), settings);
    made.append(...inside);
    return made;
  };
  const button = (label, words, press) => make("button", { type: "button", textContent: label, title: words, ariaLabel: words, onclick: press });

  return { bytes, button, make, time };
})();
