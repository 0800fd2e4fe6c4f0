// The moving part of a page of one plan, or of two: timelines, who sends what to whom, memory. Data: explorer.py.
"use strict";
(({ bytes, button, make, time }) => {
  const root = document.getElementById("explorer");
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  if (!root || !data.rows.length) return;
  root.querySelector("[data-still]").hidden = true;

  // -- what is shown ----------------------------------------------------------------------------------------------

  const LANE = 20, BAR = 15, GAP = 8, HEAD = 22, AXIS = 24;
  const whole = { from: 0, to: Math.max(data.end, 1e-3) };
  const view = { ...whole };
  const state = { chosen: null, hover: null, query: "", path: false, resident: false, all: false, ranks: data.ranks ? data.ranks[0][1] : null };
  const matches = (task) => state.query && data.tasks[task].n.toLowerCase().includes(state.query);
  const plain = (name) => data.changes ? name : name.replace(/\d+/g, "#"); // repeated layers are one in the views of one plan
  const shown = () => data.rows.filter((row) => !state.ranks || state.ranks[row.g] === row.r);
  const steps = new Set(data.path.map(([task, rank]) => `${task}/${rank}`));
  const numbers = new Map(); // task/rank of each group -> length
  for (const row of data.rows)
    for (let k = 0; k < row.e.length; k += 3) numbers.set(`${row.g}/${row.e[k]}/${row.r}`, row.e[k + 2]);

  // -- words ------------------------------------------------------------------------------------------------------

  function about(at) {
    const { row, task, start, length } = at, one = data.tasks[task];
    const other = row.g === "predicted" ? "measured" : "predicted";
    const there = numbers.get(`${other}/${task}/${row.r}`);
    const said = [["task", `${task}: ${one.n}`], ["kind", data.kinds[one.k][0]], [row.g, `${time(length)} from ${time(start)} on, ${row.n}`]];
    if (there !== undefined) {
      const ratio = row.g === "measured" ? length / there : there / length;
      said.push([other, `${time(there)}; measured / predicted ${Number(ratio.toPrecision(3))}`]);
    }
    if (one.c !== undefined) said.push(...data.changes[one.c]);
    if (row.c && row.c[task]) said.push(["kernel", row.c[task]]);
    const incoming = pairs([task]).filter(([, to]) => to === row.r), outgoing = pairs([task]).filter(([from]) => from === row.r);
    const total = (list) => bytes(list.reduce((sum, [, , n]) => sum + n, 0));
    if (incoming.length) said.push(["receives", `${total(incoming)} from ${incoming.map(([from]) => from).join(", ")}`]);
    if (outgoing.length) said.push(["sends", `${total(outgoing)} to ${outgoing.map(([, to]) => to).join(", ")}`]);
    if (one.w) said.push(["reads", one.t.filter((name) => name !== one.w).join(", ")], ["writes", one.w]);
    return said;
  }

  // -- the page ---------------------------------------------------------------------------------------------------

  const search = make("input", { type: "search", placeholder: "find an operation or tensor", ariaLabel: "find an operation or tensor" });
  const toggle = (label, words, key, after) => {
    const made = button(label, words, () => { state[key] = !state[key]; made.ariaPressed = String(state[key]); after(); });
    made.ariaPressed = "false";
    return made;
  };
  const choice = make("select", { ariaLabel: "ranks that are shown", onchange: () => { state.ranks = data.ranks[choice.value][1]; lay(); draw(); } },
    ...(data.ranks || []).map(([label], k) => make("option", { value: String(k), textContent: label })));
  const pathButton = toggle("critical path", "outline the tasks that the length of the run hangs on", "path", () => { list.hidden = !state.path; draw(); });
  const cursor = make("span", { className: "says" });
  const lanes = make("canvas", { tabIndex: 0, ariaLabel: "timeline: arrows move it, plus and minus zoom, 0 shows all, n and p find, Escape leaves" });
  lanes.setAttribute("role", "img");
  const chosen = make("div", { className: "chosen" });
  const list = make("ol", { className: "path", hidden: true });
  const bands = make("div");
  const tip = make("div", { className: "tip", hidden: true });
  const residentButton = toggle("resident to scale", "draw params and states as high as they are", "resident", drawMemory);
  const moreButton = toggle("every rank", "show the memory of every rank", "all", layMemory);
  root.append(
    make("div", { className: "bar" }, search, button("next", "the next that was found (n)", () => find(1)), button("+", "closer (+)", () => zoom(0.5)),
      button("−", "farther (−)", () => zoom(2)), button("all", "the whole run (0)", () => look(whole.from, whole.to)), pathButton, ...(data.ranks ? [choice] : []), cursor),
    make("div", { className: "key" }, ...data.kinds.map(([name, colour]) => {
      const chip = make("i");
      chip.style.background = colour;
      return make("span", {}, chip, name);
    })),
    lanes, chosen, list,
    make("h3", { textContent: "Memory over time" }), make("div", { className: "bar" }, residentButton, ...(data.memory.length > 8 ? [moreButton] : [])), bands, tip);
  const totals = new Map();
  for (const [task, , , length] of data.path) totals.set(data.tasks[task].n, (totals.get(data.tasks[task].n) || 0) + length);
  for (const [name, length] of [...totals].sort((a, b) => b[1] - a[1]).slice(0, 24)) list.append(make("li", { textContent: `${name}: ${time(length)}` }));

  // -- drawing ----------------------------------------------------------------------------------------------------

  const colours = {};
  function theme() {
    const style = getComputedStyle(document.body);
    for (const name of ["paper", "ink", "soft", "line", "wash", "accent"]) colours[name] = style.getPropertyValue(`--${name}`).trim() || "#888";
  }
  const left = () => lanes.clientWidth < 560 ? 92 : 118;
  const x = (us) => left() + (us - view.from) / (view.to - view.from) * (lanes.clientWidth - left());
  const when = (px) => view.from + (px - left()) / (lanes.clientWidth - left()) * (view.to - view.from);

  function sheet(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.style.height = `${height}px`;
    [canvas.width, canvas.height] = [width, height].map((size) => Math.round(size * ratio));
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return Object.assign(pen, { font: "10px system-ui, sans-serif", textBaseline: "middle" });
  }

  const places = []; // where each row is: top, and whether a heading or a name stands above it
  let tall = AXIS;
  function lay() {
    let before = null;
    [tall, places.length] = [AXIS, 0];
    for (const row of shown()) {
      const group = !before || before.g !== row.g, rank = group || before.r !== row.r;
      tall += group ? HEAD : rank ? GAP : 0;
      places.push({ row, top: tall, group, rank });
      tall += LANE;
      before = row;
    }
    root.dataset.rows = String(places.length);
  }

  function first(row, us) { // the first event that ends after an instant: those of a lane follow one another
    let low = 0, high = row.e.length / 3;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.e[3 * middle + 1] + row.e[3 * middle + 2] < us) low = middle + 1; else high = middle;
    }
    return low;
  }

  function ticks(pen, bottom) {
    const step = [1, 2, 5].flatMap((k) => [...Array(16)].map((_, p) => k * 10 ** (p - 4))).sort((a, b) => a - b)
      .find((size) => (view.to - view.from) / size <= Math.max(2, (lanes.clientWidth - left()) / 90)) || view.to;
    Object.assign(pen, { fillStyle: colours.soft, strokeStyle: colours.line, textAlign: "center" });
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const px = x(at);
      pen.beginPath(); pen.moveTo(px, AXIS - 6); pen.lineTo(px, bottom); pen.stroke();
      if (px > left() + 14 && px < lanes.clientWidth - 22) pen.fillText(time(at), px, 9);
    }
  }

  function fitted(pen, name, width) {
    for (const words of [name, name.slice(name.lastIndexOf(".") + 1)]) if (pen.measureText(words).width <= width) return words;
    return "";
  }
  function cut(pen, words, width) {
    if (pen.measureText(words).width <= width) return words;
    while (words && pen.measureText(`${words}…`).width > width) words = words.slice(0, -1);
    return `${words}…`;
  }
  const ink = (colour) => {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b > 132 ? "#10151c" : "#ffffff";
  };

  function related(task) {
    if (state.query) return matches(task);
    if (state.chosen === null) return true;
    const mine = data.tasks[state.chosen.task], other = data.tasks[task];
    return other.n === mine.n || (mine.w ? other.t.includes(mine.w) : other.t.includes(mine.n));
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawLanes(); drawMemory(); drawSquare(); });
  }

  function drawLanes() {
    const pen = sheet(lanes, tall + 4);
    ticks(pen, tall);
    for (const { row, top, group, rank } of places) {
      pen.textAlign = "left";
      pen.fillStyle = colours.ink;
      if (group) {
        const ends = data.rows.filter((one) => one.g === row.g).map((one) => one.e[one.e.length - 2] + one.e[one.e.length - 1]);
        pen.font = "600 12px system-ui, sans-serif";
        const words = `${row.g}: ${time(Math.max(...ends))}`;
        pen.fillStyle = colours.paper;
        pen.fillRect(0, top - 19, pen.measureText(words).width + 6, 16);
        pen.fillStyle = colours.ink;
        pen.fillText(words, 0, top - 11);
        pen.font = "10px system-ui, sans-serif";
      }
      if (rank) pen.fillText(cut(pen, row.n, left() - 14 - pen.measureText(row.l).width), 0, top + BAR / 2);
      Object.assign(pen, { fillStyle: colours.soft, textAlign: "right" });
      pen.fillText(row.l, left() - 6, top + BAR / 2);
      pen.fillStyle = colours.wash;
      pen.fillRect(left(), top, lanes.clientWidth - left(), BAR);
      pen.save();
      pen.beginPath(); pen.rect(left(), top - 3, lanes.clientWidth - left(), BAR + 6); pen.clip();
      drawEvents(pen, row, top);
      pen.restore();
    }
    const at = state.hover && state.hover.us;
    if (at !== null && at !== undefined) {
      pen.strokeStyle = colours.accent;
      pen.beginPath(); pen.moveTo(x(at), AXIS - 6); pen.lineTo(x(at), tall); pen.stroke();
    }
  }

  function drawEvents(pen, row, top) {
    let reached = -1;
    for (let k = first(row, view.from); k < row.e.length / 3 && row.e[3 * k + 1] <= view.to; k += 1) {
      const [task, start, length] = row.e.slice(3 * k, 3 * k + 3), one = data.tasks[task];
      const from = x(start), to = Math.max(x(start + length), from + 0.7), critical = state.path && row.g !== "measured" && steps.has(`${task}/${row.r}`);
      if (to <= reached && !critical && !matches(task)) continue; // nothing of it would be seen
      reached = Math.max(reached, Math.ceil(to));
      const colour = data.kinds[one.k][1];
      pen.globalAlpha = related(task) ? 1 : 0.22;
      pen.fillStyle = colour;
      pen.fillRect(from, top, to - from, BAR);
      if (to - from > 26 && related(task)) {
        const words = fitted(pen, one.n, to - from - 8), shown = [Math.max(from, left()), Math.min(to, lanes.clientWidth)];
        Object.assign(pen, { fillStyle: ink(colour), textAlign: "center" });
        if (words && shown[1] - shown[0] > pen.measureText(words).width) pen.fillText(words, (shown[0] + shown[1]) / 2, top + BAR / 2);
      }
      pen.globalAlpha = 1;
      if (one.c !== undefined) {
        pen.fillStyle = colours.accent;
        pen.fillRect(from, top + BAR, Math.max(to - from, 1.5), 3);
      }
      const same = data.changes && state.chosen && data.tasks[state.chosen.task].n === one.n;
      const mine = same || (state.chosen && state.chosen.row === row && state.chosen.task === task);
      if (mine || critical) {
        Object.assign(pen, { strokeStyle: mine ? colours.accent : colours.ink, lineWidth: 2 });
        pen.strokeRect(from, top - 1, to - from, BAR + 2);
        pen.lineWidth = 1;
      }
    }
  }

  // -- who sends what to whom -------------------------------------------------------------------------------------

  function pairs(tasks) {
    const found = new Map();
    for (const task of tasks) {
      if (data.of[task] === undefined) continue;
      for (const [from, to, n] of data.moves[data.of[task]]) found.set(`${from}/${to}`, (found.get(`${from}/${to}`) || 0) + n);
    }
    return [...found].map(([key, n]) => [...key.split("/").map(Number), n]);
  }

  let square = null, shownPairs = [];
  function drawSquare() {
    if (!square) return;
    const seen = new Set();
    if (state.chosen && data.of[state.chosen.task] !== undefined) seen.add(state.chosen.task);
    else for (const row of data.rows)
      if (row.g === "predicted")
        for (let k = first(row, view.from); k < row.e.length / 3 && row.e[3 * k + 1] <= view.to; k += 1) seen.add(row.e[3 * k]);
    shownPairs = pairs(seen);
    const ranks = 1 + Math.max(0, ...data.moves.flat().map(([from, to]) => Math.max(from, to)));
    const edge = Math.min(square.clientWidth, 300), cell = (edge - 26) / ranks, most = Math.max(1, ...shownPairs.map(([, , n]) => n));
    const pen = sheet(square, edge);
    pen.fillStyle = colours.wash;
    pen.fillRect(26, 26, cell * ranks, cell * ranks);
    for (const [from, to, n] of shownPairs) {
      pen.globalAlpha = 0.15 + 0.85 * n / most;
      pen.fillStyle = colours.accent;
      pen.fillRect(26 + to * cell, 26 + from * cell, Math.max(cell - 0.5, 0.5), Math.max(cell - 0.5, 0.5));
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colours.soft;
    const every = Math.ceil(ranks / 8);
    for (let rank = 0; rank < ranks; rank += every) {
      pen.textAlign = "center"; pen.fillText(String(rank), 26 + (rank + 0.5) * cell, 19);
      pen.textAlign = "right"; pen.fillText(String(rank), 22, 26 + (rank + 0.5) * cell);
    }
    square.nextSibling.textContent = state.chosen && data.of[state.chosen.task] !== undefined
      ? `${data.tasks[state.chosen.task].n}: rows send, columns receive; the darkest ${bytes(most)}`
      : `all transfers in view: rows send, columns receive; ${shownPairs.length ? `the darkest ${bytes(most)}` : "nothing is sent"}`;
    square.onpointermove = (event) => {
      const to = Math.floor((event.offsetX - 26) / cell), from = Math.floor((event.offsetY - 26) / cell);
      const hit = shownPairs.find((pair) => pair[0] === from && pair[1] === to);
      if (hit) point(event, `rank ${from} → rank ${to}: ${bytes(hit[2])}`); else tip.hidden = true;
    };
    square.onpointerleave = () => { tip.hidden = true; };
  }

  // -- memory -----------------------------------------------------------------------------------------------------

  const strips = [];
  function layMemory() {
    bands.textContent = "";
    strips.length = 0;
    for (const one of state.all ? data.memory : data.memory.slice(0, 8)) {
      const canvas = make("canvas", { ariaLabel: `memory ${one.t} of ${one.n} over time` });
      const words = make("div", { className: "says" });
      canvas.setAttribute("role", "img");
      canvas.onpointermove = (event) => {
        const now = valueAt(one, when(event.offsetX));
        point(event, `${time(when(event.offsetX))}\nresident ${bytes(now[1])}\nother ${bytes(now[2])}`);
      };
      canvas.onpointerleave = () => { tip.hidden = true; };
      bands.append(words, canvas);
      strips.push({ one, canvas, words });
    }
    draw();
  }
  function valueAt(one, us) {
    let found = [0, 0, 0];
    for (const point of one.p) { if (point[0] > us) break; found = point; }
    return found;
  }
  function drawMemory() {
    for (const { one, canvas, words } of strips) {
      const height = 74, pen = sheet(canvas, height);
      const resident = Math.max(...one.p.map((point) => point[1])), most = Math.max(1, ...one.p.map((point) => point[2]));
      const peak = Math.max(...one.p.map((point) => point[1] + point[2]));
      words.textContent = `${one.t} of ${one.n}: ${bytes(peak)} in use at most of ${bytes(one.c)}; ${bytes(resident)} resident${state.resident || !resident ? "" : " (folded)"}`;
      const floor = state.resident ? 0 : resident ? 7 : 0, unit = (height - 4 - floor) / (state.resident ? peak : most);
      pen.fillStyle = colours.wash;
      pen.fillRect(left(), 2, canvas.clientWidth - left(), height - 2);
      pen.save();
      pen.beginPath(); pen.rect(left(), 0, canvas.clientWidth - left(), height); pen.clip();
      one.p.forEach(([start, kept, other], k) => {
        const end = k + 1 < one.p.length ? one.p[k + 1][0] : whole.to;
        if (end < view.from || start > view.to) return;
        const from = x(start), width = Math.max(x(end) - from, 0.6), base = state.resident ? kept * unit : kept ? floor : 0;
        pen.fillStyle = "#9aa4af";
        pen.fillRect(from, height - base, width, base);
        pen.fillStyle = "#0072b2";
        pen.fillRect(from, height - base - other * unit, width, other * unit);
      });
      pen.restore();
      Object.assign(pen, { fillStyle: colours.soft, textAlign: "right" });
      pen.fillText(bytes(state.resident ? peak : most), left() - 6, 8);
    }
  }

  // -- what is chosen ---------------------------------------------------------------------------------------------

  function choose(at) {
    state.chosen = at;
    root.dataset.chosen = at ? `${at.task}/${at.row.r}` : "";
    chosen.textContent = "";
    if (at) {
      const table = make("table");
      for (const [name, words] of about(at)) table.append(make("tr", {}, make("td", { className: "soft", textContent: name }), make("td", { textContent: words })));
      chosen.append(table);
    }
    square = null;
    if (data.moves.length && (!data.changes || (at && data.of[at.task] !== undefined))) {
      square = make("canvas", { ariaLabel: "who sends what to whom" });
      square.setAttribute("role", "img");
      chosen.append(make("div", { className: "square" }, make("h3", { textContent: "Who sends what to whom" }), square, make("div", { className: "says" })));
    }
    const names = new Set();
    if (at) for (const name of [data.tasks[at.task].n, ...(data.changes ? [data.tasks[at.task].w || ""] : data.tasks[at.task].t)]) names.add(plain(name));
    for (const part of document.querySelectorAll("[data-names]"))
      part.classList.toggle("linked", part.dataset.names.split(" ").some((name) => names.has(plain(decodeURIComponent(name)))));
    draw();
  }

  function look(from, to) {
    const span = Math.min(Math.max(to - from, 1e-3), whole.to - whole.from);
    view.from = Math.min(Math.max(from, whole.from), whole.to - span);
    view.to = view.from + span;
    root.dataset.view = `${view.from} ${view.to}`;
    draw();
  }
  function zoom(factor, around = (view.from + view.to) / 2) {
    look(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }
  function find(direction) {
    const hits = shown().flatMap((row) => row.e.flatMap((_, k) => k % 3 === 0 && matches(row.e[k]) ? [{ row, task: row.e[k], start: row.e[k + 1], length: row.e[k + 2] }] : []));
    cursor.textContent = state.query ? `${hits.length} found` : "";
    if (!hits.length) return;
    hits.sort((a, b) => a.start - b.start || data.rows.indexOf(a.row) - data.rows.indexOf(b.row));
    const now = state.chosen ? hits.findIndex((hit) => hit.row === state.chosen.row && hit.task === state.chosen.task) : -1;
    const next = hits[(now + direction + hits.length) % hits.length];
    const span = Math.min(view.to - view.from, Math.max(next.length * 12, (whole.to - whole.from) / 200));
    look(next.start + next.length / 2 - span / 2, next.start + next.length / 2 + span / 2);
    choose(next);
  }

  function under(event) {
    const us = when(event.offsetX), place = places.find(({ top }) => event.offsetY >= top && event.offsetY < top + BAR + 2);
    if (!place || event.offsetX < left()) return { us };
    const slack = (view.to - view.from) / lanes.clientWidth, k = first(place.row, us - slack), e = place.row.e;
    if (3 * k >= e.length || e[3 * k + 1] > us + slack) return { us };
    return { us, hit: { row: place.row, task: e[3 * k], start: e[3 * k + 1], length: e[3 * k + 2] } };
  }
  function point(event, words) {
    Object.assign(tip, { textContent: words, hidden: false });
    tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)}px`;
  }

  let drag = null;
  lanes.onpointerdown = (event) => { drag = { at: event.offsetX, from: view.from, to: view.to, moved: false }; if (event.isTrusted) lanes.setPointerCapture(event.pointerId); };
  lanes.onpointermove = (event) => {
    if (drag) {
      const by = (event.offsetX - drag.at) / (lanes.clientWidth - left()) * (drag.to - drag.from);
      drag.moved ||= Math.abs(event.offsetX - drag.at) > 3;
      if (drag.moved) look(drag.from - by, drag.to - by);
      return;
    }
    state.hover = under(event);
    cursor.textContent = time(state.hover.us);
    if (state.hover.hit) point(event, about(state.hover.hit).map(([name, words]) => `${name}: ${words}`).join("\n")); else tip.hidden = true;
    draw();
  };
  lanes.onpointerup = (event) => { if (drag && !drag.moved) choose(under(event).hit || null); drag = null; };
  lanes.onpointerleave = () => { state.hover = null; tip.hidden = true; draw(); };
  lanes.ondblclick = (event) => zoom(0.25, when(event.offsetX));
  lanes.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && document.activeElement !== lanes) return; // the page scrolls
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX || event.deltaY) / lanes.clientWidth * (view.to - view.from);
      look(view.from + by, view.to + by);
    } else zoom(Math.exp(event.deltaY / 400), when(event.offsetX));
  }, { passive: false });
  lanes.onkeydown = (event) => {
    const span = view.to - view.from;
    const keys = {
      ArrowLeft: () => look(view.from - span / 5, view.to - span / 5), ArrowRight: () => look(view.from + span / 5, view.to + span / 5),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => look(whole.from, whole.to), n: () => find(1), p: () => find(-1), Escape: () => choose(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  search.oninput = () => { state.query = search.value.trim().toLowerCase(); cursor.textContent = ""; draw(); };
  search.onkeydown = (event) => { if (event.key === "Enter") find(event.shiftKey ? -1 : 1); if (event.key === "Escape") { search.value = ""; search.oninput(); } };
  document.addEventListener("click", (event) => { // parts of the page after this script are not there yet
    const part = event.target.closest("[data-names]");
    if (!part || event.target.closest("summary")) return;
    const wanted = new Set(part.dataset.names.split(" ").map((name) => plain(decodeURIComponent(name))));
    for (const row of shown())
      for (let k = 0; k < row.e.length; k += 3)
        if ([data.tasks[row.e[k]].n, data.tasks[row.e[k]].w || ""].some((name) => wanted.has(plain(name)))) return void choose({ row, task: row.e[k], start: row.e[k + 1], length: row.e[k + 2] });
  });
  new ResizeObserver(draw).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme(); draw(); });

  theme();
  lay();
  layMemory();
  choose(null);
  root.dataset.ready = "yes";
})(parts);
