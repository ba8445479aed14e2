"use strict";
// Draws the areas again for a part of the trace, and shows the stack of the one that is clicked. Text only as text.
for (const section of document.querySelectorAll("section.memory")) {
  const data = JSON.parse(document.getElementById("data").textContent)[+section.dataset.number];
  const svg = section.querySelector(".chart"), areas = svg.querySelector(".areas"), NS = svg.namespaceURI;
  const W = 1070, H = 320;
  const sum = (steps) => { let v = 0; return steps.map((s) => (v += s)); };
  const views = data.views.map((v) => ({ ...v, rows: v.rows.map(sum), reserved: sum(v.reserved), t: sum(v.t) }));
  let view = views[0], from = 0, to = view.t.length - 1, chosen = null;
  const bytes = (kib) => {
    for (const [unit, name] of [[2 ** 20, "GiB"], [2 ** 10, "MiB"]]) {
      const value = kib / unit;
      if (value >= 1) return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${name}`;
    }
    return `${kib} KiB`;
  };
  const make = (name, parent, set) => {
    const made = document.createElementNS(NS, name);
    for (const key in set) made.setAttribute(key, set[key]);
    parent.append(made);
    return made;
  };
  const label = (row) => (row < view.stacks.length ? data.stacks[view.stacks[row]].label : "all other stacks");

  function points() {
    const a = Math.floor(from), b = Math.ceil(to), out = [];
    for (let i = a; i <= b; i++) out.push(i);
    return out;
  }
  // A column is as wide as the events that it stands for: column i reaches from x(i) to x(i + 1).
  function draw() {
    const at = points(), x = (i) => ((i - from) / (to - from + 1)) * W;
    let top = 1;
    for (const i of at) top = Math.max(top, view.reserved[i], view.rows.reduce((s, r) => s + r[i], 0));
    const y = (v) => H - (H * v) / top, clip = (v) => Math.max(-1, Math.min(W + 1, v)).toFixed(1);
    const stair = (i, v) => `${clip(x(i))},${y(v).toFixed(1)} ${clip(x(i + 1))},${y(v).toFixed(1)}`;
    const back = (i, v) => `${clip(x(i + 1))},${y(v).toFixed(1)} ${clip(x(i))},${y(v).toFixed(1)}`;
    areas.replaceChildren();
    const below = at.map(() => 0);
    view.rows.forEach((row, n) => {
      const low = at.map((i, k) => back(i, below[k])).reverse().join(" ");
      let most = 0;
      const high = at.map((i, k) => { most = Math.max(most, row[i]); below[k] += row[i]; return stair(i, below[k]); });
      if (!most) return;
      const stack = n < view.stacks.length ? view.stacks[n] : -1;
      const path = make("path", areas, { d: `M${high.join(" ")} ${low}Z`, class: `h${stack < 0 ? -1 : stack % 12}${stack === chosen ? " on" : ""}`, "data-row": n });
      make("title", path, {}).textContent = `${label(n)}: up to ${bytes(most)}`;
    });
    svg.querySelector(".reserved").setAttribute("d", "M" + at.map((i) => stair(i, view.reserved[i])).join(" "));
    marks(top, y);
    const peak = svg.querySelector(".peak"), p = view.peak;
    const inside = p + 0.5 >= from && p + 0.5 <= to + 1;
    peak.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) {
      const high = y(view.rows.reduce((s, r) => s + r[p], 0));
      peak.setAttribute("transform", `translate(${x(p + 0.5).toFixed(1)},${high.toFixed(1)})`);
      peak.querySelector("line").setAttribute("y2", H - high);
      peak.classList.toggle("left", x(p + 0.5) < 140);
    }
    const event = (i) => Math.max(0, Math.round(view.first + ((view.last - view.first) * i) / Math.max(1, view.t.length - 1)));
    const time = (i) => (view.t[Math.round(i)] ? `, ${(view.t[Math.round(i)] / 1e6).toFixed(3)} s` : "");
    svg.querySelector(".axis.begin").textContent = `event ${event(from)}${time(from)}`;
    svg.querySelector(".axis.end").textContent = `event ${event(to)}${time(to)}`;
  }
  function marks(top, y) {
    for (const old of svg.querySelectorAll(".tick")) old.remove();
    let step = 1;
    while (top / step > 6) step *= 2;
    for (let v = step; v <= top; v += step) {
      const g = make("g", svg, { class: "tick" });
      make("line", g, { x1: 0, x2: W, y1: y(v), y2: y(v) });
      make("text", g, { x: -6, y: y(v) + 4 }).textContent = bytes(v);
      svg.prepend(g);
    }
  }
  function show(row, i) {
    const box = section.querySelector(".chosen"), stack = row < view.stacks.length ? data.stacks[view.stacks[row]] : null;
    chosen = stack ? view.stacks[row] : null;
    box.hidden = false;
    box.querySelector("h3").textContent = `${label(row)}: ${bytes(view.rows[row][i])}`;
    box.querySelector("p").textContent = stack ? [stack.phase, stack.callers.slice(1).join(" < ")].filter(Boolean).join(" · ") : "";
    box.querySelector("pre").textContent = stack && stack.frames.length ? stack.frames.join("\n") : "no Python frame";
    draw();
  }
  const share = (event) => {
    const box = svg.getBoundingClientRect(), scale = (W + 82) / box.width;
    return ((event.clientX - box.left) * scale - 74) / W;
  };
  const limit = () => {
    const most = view.t.length - 1, width = Math.min(most, Math.max(4, to - from));
    from = Math.max(0, Math.min(from, most - width));
    to = from + width;
  };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = from + share(event) * (to - from), by = Math.exp(event.deltaY / 400);
    from = at - (at - from) * by; to = at + (to - at) * by;
    limit(); draw();
  }, { passive: false });
  let held = null, moved = false;
  svg.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from, to }; moved = false; });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const by = ((event.clientX - held.x) / svg.getBoundingClientRect().width) * (held.to - held.from);
    if (Math.abs(event.clientX - held.x) > 3) moved = true;
    if (moved) { from = held.from - by; to = held.to - by; limit(); draw(); }
  });
  addEventListener("pointerup", () => { held = null; });
  areas.addEventListener("click", (event) => {
    const row = event.target.closest("path")?.dataset.row;
    if (row !== undefined && !moved) show(+row, Math.max(0, Math.min(view.t.length - 1, Math.floor(from + share(event) * (to - from + 1)))));
  });
  const whole = () => { from = 0; to = view.t.length - 1; };
  svg.addEventListener("dblclick", () => { whole(); draw(); });
  for (const button of section.querySelectorAll("button")) button.addEventListener("click", () => {
    if (button.dataset.view) { view = views[+button.dataset.view]; whole(); }
    else if (view.peak >= 0) { const w = (view.t.length - 1) / 24; from = view.peak - w; to = view.peak + w; limit(); }
    draw();
  });
  section.querySelector(".tools").hidden = false;
  draw();
}
