"use strict";
// Everything that comes from a query is put into the page as text, never as markup.

const RANGES = [["5 min", 300], ["1 h", 3600], ["1 d", 86400], ["all", Infinity]];
const QUIET_S = 10; // without a micro-batch, before it is said that the query waits
const SVG = "http://www.w3.org/2000/svg";
const $ = id => document.getElementById(id);

let whole = null; // what the server told at first, and since
let range = Number(localStorage.getItem("range")) || Infinity;
let connected = false;
let cursor = null; // the time under the pointer

// Numbers as people write them.

const digits = (n, most) => n.toLocaleString("en", {maximumFractionDigits: most});
function count(n) {
  if (n == null) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return digits(n / 1e9, 2) + " billion";
  if (size >= 1e7) return digits(n / 1e6, 1) + " million";
  return digits(n, size < 10 ? 2 : size < 100 ? 1 : 0);
}
function bytes(n) {
  if (n == null) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (n >= size) return digits(n / size, n < 10 * size ? 2 : n < 100 * size ? 1 : 0) + "\u00a0" + unit;
  return digits(n, 0) + "\u00a0B";
}
function duration(s) {
  if (s == null) return "–";
  if (s < 0) return "−" + duration(-s);
  if (s === 0) return "0\u00a0s";
  if (s < 0.9995) return digits(s * 1000, s < 0.01 ? 1 : 0) + "\u00a0ms";
  if (s < 120) return digits(s, s < 10 ? 2 : s < 60 ? 1 : 0) + "\u00a0s";
  if (s < 7200) return digits(s / 60, s < 600 ? 1 : 0) + "\u00a0min";
  if (s < 172800) return digits(s / 3600, 1) + "\u00a0h";
  return digits(s / 86400, s < 864000 ? 1 : 0) + "\u00a0days";
}
const times = n => n == null ? "–" : digits(n, 2) + "\u00a0×";
function clock(t, span) {
  const style = span > 172800 ? {month: "short", day: "numeric", hour: "2-digit"}
    : span > 900 ? {hour: "2-digit", minute: "2-digit"}
    : {hour: "2-digit", minute: "2-digit", second: "2-digit"};
  return new Date(t * 1000).toLocaleString("en-GB", style);
}

// Elements.

function make(tag, given = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(given))
    key === "class" ? made.className = value : made.setAttribute(key, value);
  made.append(...inside.filter(part => part != null));
  return made;
}
function draw(tag, given = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  if (text != null) made.textContent = text;
  return made;
}

// The numbers of now.

function tiles() {
  const {totals, percentiles, batch} = whole, points = whole.points;
  const last = points.at(-1), recent = points.slice(-10).filter(p => last && p.run === last.run);
  const span = recent.reduce((sum, p) => sum + p.span, 0);
  const rate = key => span ? recent.reduce((sum, p) => sum + p[key], 0) / span : null;
  const ms = share => duration(percentiles[share] == null ? null : percentiles[share] / 1000);
  const units = batch ? batch.units.length : 0;
  return [
    ["Rows in", count(rate("rows")), "/s", `${count(totals.rows)} in all`],
    ["Rows out", count(rate("out")), "/s", `${count(totals.out)} in all`],
    ["Matches", count(totals.matches), "",
      batch ? `${count(batch.units.reduce((n, u) => n + u.matches, 0))} in the last micro-batch` : ""],
    ["Micro-batch, median", ms("p50"), "", `95%: ${ms("p95")}, 99%: ${ms("p99")}`],
    ["Watermark lag", duration(last && last.lag), "", last && last.age != null
      ? `to the newest row; ${duration(last.age)} to the clock` : "no watermark yet"],
    ["Late rows", count(totals.late), "", totals.late ? "dropped, or without a time" : "none was dropped",
      totals.late > 0],
    ["State", bytes(last && last.state), "",
      last ? `${count(last.stored)} rows in ${count(last.segments)} segments` : ""],
    ["Busiest unit", times(last && last.busiest), "",
      units ? `the mean of ${count(units)} ${units === 1 ? "unit" : "units"}` : "of the units' mean"],
  ];
}
function showTiles() {
  $("tiles").replaceChildren(...tiles().map(([name, value, unit, more, alarm]) =>
    make("div", {class: alarm ? "tile alarm" : "tile"},
      make("div", {class: "name"}, name),
      make("div", {class: "value"}, value, unit ? make("small", {}, unit) : null),
      make("div", {class: "more"}, more))));
}

// The charts: small, with one scale each, in the units on their axes.

// How fast the rows of a run's first micro-batch came is not known: they were there before.
const perSecond = key => p => p.first && p.batches === 1 ? null : p[key] / p.span;
const CHARTS = [
  {name: "Rows in", unit: "/s", show: count, area: true,
    lines: [["arrived", perSecond("rows")], ["could be joined", p => p.capacity]]},
  {name: "Rows out", unit: "/s", show: count, area: true, lines: [["", perSecond("out")]]},
  {name: "Micro-batch", show: duration, time: true,
    lines: [["mean", p => p.ms / 1000], ["slowest", p => p.slowest / 1000]],
    mark: () => whole.picture.interval && ["trigger", whole.picture.interval]},
  {name: "Watermark lag", show: duration, time: true,
    lines: [["to newest row", p => p.lag], ["to clock", p => p.age]], apart: 20},
  {name: "Late rows", show: count, bars: true, least: 1, lines: [["", p => p.late]]},
  {name: "State", show: bytes, area: true,
    lines: [["in the state store", p => p.state], ["indexes", p => p.index]]},
  {name: "Segments", show: count, least: 1, lines: [["", p => p.segments]]},
  {name: "Busiest unit over the mean", show: times, lines: [["", p => p.busiest]]},
];
const STEPS = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 21600, 43200, 86400];
function step(most, isTime) {
  const rough = most / 4;
  const known = isTime && STEPS.find(s => s >= rough);
  if (known) return known;
  const ten = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(n => n * ten).find(s => s >= rough * .999);
}
function shown() {
  const all = whole.points;
  all.forEach((p, at) => { p.first = all[at - 1]?.run !== p.run && all[at + 1]?.run === p.run; });
  if (!all.length || range === Infinity) return all;
  const from = all.at(-1).at - range;
  return all.filter(p => p.at >= from);
}
const CLASSES = ["one", "two"];
const HEIGHT = 150, RIGHT = 4, TOP = 8, BOTTOM = 20;
const largest = (points, f) => Math.max(0, ...points.map(f).filter(v => v != null));

function chart(spec, points, width) {
  const svg = draw("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "img"});
  const [one, two] = spec.lines;
  // A line that dwarfs the other would hide what happens in it.
  const alone = spec.apart && largest(points, two[1]) > spec.apart * Math.max(largest(points, one[1]), 1);
  const lines = alone ? [one] : spec.lines, mark = spec.mark && spec.mark();
  const head = [make("span", {class: "name"}, spec.name)];
  if (spec.lines.length > 1)
    lines.forEach(([name], at) => head.push(make("span", {class: "legend " + CLASSES[at]}, name)));
  if (mark) head.push(make("span", {class: "legend mark"}, mark[0]));
  if (alone) head.push(make("span", {class: "legend none"}, `the clock is ${duration(points.at(-1).age)} ahead`));
  const card = make("div", {class: "chart"}, make("div", {class: "head"}, ...head), svg);
  const newest = f => spec.show(points.length ? f(points.at(-1)) : null);
  svg.setAttribute("aria-label", `${spec.name}: ` + lines.map(([name, f]) => `${name} ${newest(f)}`).join(", "));
  if (!points.some(p => lines.some(line => line[1](p) != null))) {
    svg.append(draw("text", {class: "empty", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle"},
      points.length ? "nothing to show for this query" : "waiting for the first micro-batch"));
    return card;
  }
  const scale = scales(spec, points, lines, mark, width);
  drawAxes(svg, scale, points);
  if (mark) svg.append(draw("line",
    {class: "mark", x1: scale.left, x2: width - RIGHT, y1: scale.y(mark[1]), y2: scale.y(mark[1])}));
  for (let at = lines.length - 1; at >= 0; at--) // the first on top
    spec.bars ? drawBars(svg, scale, points, lines[at][1]) : drawLine(svg, scale, points, lines[at][1], at, spec.area);
  if (cursor != null) drawCursor(card, svg, scale, points, spec, lines);
  svg.addEventListener("pointermove", event => {
    const place = svg.getBoundingClientRect();
    cursor = scale.time((event.clientX - place.left) / place.width * width);
    soon();
  });
  return card;
}
function scales(spec, points, lines, mark, width) {
  const most = Math.max(...lines.map(line => largest(points, line[1])), mark ? mark[1] : 0);
  const gap = Math.max(step(most || 1, spec.time), spec.least || 0);
  const ticks = Math.max(1, Math.ceil(most / gap - 1e-9));
  const labels = Array.from({length: ticks + 1}, (_, at) => spec.show(at * gap) + (spec.unit || ""));
  const left = 10 + 6.1 * Math.max(...labels.map(text => text.length));
  const begin = points[0].at - (points.length === 1 ? 1 : 0), end = points.at(-1).at;
  const across = width - left - RIGHT, span = end - begin || 1;
  return {
    width, left, labels, begin, end, gap,
    x: t => left + (t - begin) / span * across,
    y: v => HEIGHT - BOTTOM - v / (ticks * gap) * (HEIGHT - TOP - BOTTOM),
    time: x => begin + (x - left) / across * span,
  };
}
function drawAxes(svg, {width, left, labels, begin, end, gap, x, y}, points) {
  labels.forEach((text, at) => {
    const level = y(at * gap);
    svg.append(
      draw("line", {class: at ? "grid" : "base", x1: left, x2: width - RIGHT, y1: level, y2: level}),
      draw("text", {x: left - 6, y: level + 4, "text-anchor": "end"}, text));
  });
  const places = width > 420 ? [0, 1 / 3, 2 / 3, 1] : [0, .5, 1];
  places.forEach((share, at) => {
    const anchor = at === 0 ? "start" : at === places.length - 1 ? "end" : "middle";
    const t = begin + share * (end - begin);
    svg.append(draw("text", {x: x(t), y: HEIGHT - 4, "text-anchor": anchor}, clock(t, end - begin)));
  });
  for (let at = 1; at < points.length; at++)
    if (points[at].run !== points[at - 1].run) {
      const t = x((points[at].at + points[at - 1].at) / 2);
      const line = draw("line", {class: "restart", x1: t, x2: t, y1: TOP, y2: HEIGHT - BOTTOM});
      line.append(draw("title", {}, "restart"));
      svg.append(line);
    }
}
function drawBars(svg, {x, y}, points, f) {
  for (const p of points.filter(f))
    svg.append(draw("rect", {class: "bar", x: x(p.at) - 1.5, width: 3, y: y(f(p)), height: y(0) - y(f(p))}));
}
function drawLine(svg, {x, y}, points, f, at, area) {
  for (const part of pieces(points, f)) {
    const path = "M" + part.map(p => `${x(p.at).toFixed(1)},${y(f(p)).toFixed(1)}`).join("L");
    if (part.length === 1) {
      svg.append(draw("circle", {class: CLASSES[at], cx: x(part[0].at), cy: y(f(part[0])), r: 2.5}));
      continue;
    }
    if (area && at === 0)
      svg.append(draw("path", {class: "area", d: `${path}L${x(part.at(-1).at)},${y(0)}L${x(part[0].at)},${y(0)}Z`}));
    svg.append(draw("path", {class: CLASSES[at], d: path}));
  }
}
function drawCursor(card, svg, {x}, points, spec, lines) {
  const near = points.reduce((a, p) => Math.abs(p.at - cursor) < Math.abs(a.at - cursor) ? p : a);
  svg.append(draw("line", {class: "cursor", x1: x(near.at), x2: x(near.at), y1: TOP, y2: HEIGHT - BOTTOM}));
  const tip = make("div", {class: "tip"}, clock(near.at, 0));
  lines.forEach(([, f], at) => {
    const value = spec.show(f(near)) + (spec.unit && f(near) != null ? spec.unit : "");
    tip.append(make("b", {class: CLASSES[at]}, value));
  });
  card.append(tip);
  card.classList.add("pointed");
}
// Stretches of points that one line goes through: none across a restart or a missing value.
function pieces(points, f) {
  const found = [];
  let part = null, before = null;
  for (const p of points) {
    if (f(p) == null) part = null;
    else if (part && before.run === p.run) part.push(p);
    else found.push(part = [p]);
    before = p;
  }
  return found;
}
function showCharts() {
  const points = shown(), home = $("charts");
  const width = Math.round(home.firstElementChild ? home.firstElementChild.clientWidth - 24 : 330);
  home.replaceChildren(...CHARTS.map(spec => chart(spec, points, Math.max(width, 200))));
  if (!home.dataset.drawn) { // now the cards have their width
    home.dataset.drawn = "yes";
    soon();
  }
}
$("charts").addEventListener("pointerleave", () => { cursor = null; soon(); });

// The plan as a picture, with the newest micro-batch's numbers.

const box = (name, what, ...figures) => make("div", {class: "box"},
  make("div", {class: "name"}, name), what ? make("div", {class: "what"}, what) : null,
  ...figures.filter(Boolean).map(text => make("div", {class: "figure"}, text)));
function arrow(text) {
  const svg = draw("svg", {viewBox: "0 0 80 14", preserveAspectRatio: "xMaxYMid slice", "aria-hidden": "true"});
  svg.append(draw("line", {x1: 0, y1: 7, x2: 78, y2: 7}), draw("path", {d: "M72,2L79,7L72,12"}));
  return make("div", {class: "arrow"}, make("span", {}, text), svg);
}
function sourceBoxes() {
  const {picture, batch} = whole, left = batch ? [...batch.sources] : [];
  const boxes = picture.sources.map(source => {
    const at = source.stream ? left.findIndex(s => s.what.includes(source.place || source.name)) : -1;
    const found = at < 0 ? null : left.splice(at, 1)[0];
    return box(source.name, (source.stream ? "stream " : "table ") + short(source.place), found && `${count(found.rows)} rows`);
  });
  return boxes.concat(left.map(s => box(short(s.what), "", `${count(s.rows)} rows`)));
}
// The end of a long path says more than its beginning.
const short = text => text.length > 46 ? "…" + text.slice(-45) : text;
function unitRows(units) {
  const most = Math.max(...units.map(u => u.ms), .001);
  const rows = make("div", {class: "units"});
  for (const name of ["unit", "time", "", "rows", "matches", "stored"])
    rows.append(make("span", {class: "head"}, name));
  for (const u of units) {
    const fill = make("div", {class: u.ms === most && units.length > 1 ? "fill most" : "fill"});
    fill.style.width = `${u.ms / most * 100}%`;
    rows.append(make("span", {}, String(u.unit)), make("div", {class: "track"}, fill),
      make("span", {}, duration(u.ms / 1000)), make("span", {}, count(u.received)),
      make("span", {}, count(u.matches)), make("span", {}, count(u.stored)));
  }
  return rows;
}
function unitCells(units) {
  const most = Math.max(...units.map(u => u.ms), .001);
  return make("div", {class: "cells"}, ...units.map(u => {
    const cell = make("i", {title: `unit ${u.unit}: ${duration(u.ms / 1000)}, ${count(u.received)} rows, ` +
      `${count(u.matches)} matches, ${count(u.stored)} stored, ${count(u.segments)} segments`});
    cell.style.opacity = .15 + .85 * u.ms / most;
    return cell;
  }));
}
function joinBoxes() {
  const {picture, batch} = whole, units = batch ? batch.units : [];
  const joins = [...new Set(units.map(u => u.join))];
  if (!joins.length) return [box(picture.condition || "join", picture.window, "waiting for rows")];
  return joins.map(join => {
    const own = units.filter(u => u.join === join);
    const made = box(joins.length === 1 && picture.condition || "join", joins.length === 1 ? picture.window : "");
    made.append(own.length > 12 ? unitCells(own) : unitRows(own));
    return made;
  });
}
function showPlan() {
  const {picture, batch} = whole;
  $("batch").textContent = batch ? `in micro-batch ${digits(batch.number, 0)}, which took ${duration(batch.ms / 1000)}` : "";
  const received = batch ? batch.units.reduce((n, u) => n + u.received, 0) : 0;
  const copies = batch && batch.rows && received ? `${digits(received / batch.rows, 1)} copies of a row` : "";
  const [kind, ...why] = picture.routing.split(":");
  const packing = box(picture.routing ? `Packing by ${kind}` : "Packing", why.join(":").trim(), copies,
    batch && batch.sent ? `${bytes(batch.sent)} sent` : "");
  const stage = (boxes, wide) => make("div", {class: wide ? "stage wide" : "stage"}, ...boxes);
  $("plan").replaceChildren(
    stage(sourceBoxes()), arrow(batch ? `${count(batch.rows)} rows` : ""),
    stage([packing]), arrow(received ? `${count(received)} rows` : ""),
    stage(joinBoxes(), true), arrow(batch ? `${count(batch.out)} rows` : ""),
    stage([box("Sink", short(picture.sink || (batch ? batch.sink : "")))]));
  $("words").hidden = !picture.text;
  $("text").textContent = picture.text;
}

// Head and errors.

function showHead() {
  const {picture, status, totals} = whole, last = whole.points.at(-1);
  document.title = `${picture.title} · thetajoin`;
  $("title").textContent = picture.title;
  const age = last ? Date.now() / 1000 - last.at : null;
  const waits = status === "running" && age > Math.max(QUIET_S, 3 * (picture.interval || 0));
  const words = !connected && (status === "running" || status === "starting") ? "not connected"
    : waits ? `waiting for rows, ${duration(Math.round(age))}` : status;
  $("status").textContent = words;
  $("status").className = `status ${words === "running" || waits ? "running" : ""} ${status}`;
  if (words === "not connected") $("status").className = "status";
  const parts = [picture.query.replace(/\s+/g, " ")];
  if (totals.batches) {
    const restarts = totals.runs - 1;
    parts.push(`${count(totals.batches)} ${totals.batches === 1 ? "micro-batch" : "micro-batches"} since ` +
      new Date(totals.since * 1000).toLocaleString("en-GB", {dateStyle: "medium", timeStyle: "short"}) +
      (restarts ? `, ${restarts} ${restarts === 1 ? "restart" : "restarts"}` : ""));
  }
  $("subtitle").replaceChildren(...parts.filter(Boolean).map(text => make("span", {}, text)));
}
function showErrors() {
  const {errors} = whole;
  $("errors").hidden = !errors.length;
  $("errors").replaceChildren(...errors.slice(-5).reverse().map(([at, text]) =>
    make("div", {}, make("time", {}, new Date(at * 1000).toLocaleString("en-GB")), text)));
}

// Drawing, when there is something new and somebody to see it.

let due = false;
function soon() {
  if (due || !whole) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    showHead(); showErrors(); showTiles(); showCharts(); showPlan();
  });
}
setInterval(() => { if (whole && !document.hidden) showHead(); }, 1000);
new ResizeObserver(soon).observe(document.body);
document.addEventListener("visibilitychange", soon);

function choices() {
  $("ranges").replaceChildren(...RANGES.map(([name, seconds]) => {
    const button = make("button", {type: "button", "aria-pressed": String(seconds === range)}, name);
    button.addEventListener("click", () => {
      range = seconds;
      localStorage.setItem("range", String(seconds));
      choices();
      soon();
    });
    return button;
  }));
}
choices();
const root = document.documentElement;
if (localStorage.getItem("theme")) root.dataset.theme = localStorage.getItem("theme");
$("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

// News. A browser opens six connections to a server and no more, so of all tabs one listens, and
// tells the others.

const named = (fields, values) => Object.fromEntries(fields.map((name, at) => [name, values[at]]));
let newest = -1; // the number of the last message that this tab has heard of
function take({kind, text}) {
  if (kind === "lost") connected = false;
  else {
    const told = JSON.parse(text);
    connected = true;
    if (kind === "whole") begin(told);
    else {
      newest = told.number;
      if (whole && told.number === whole.number + 1) follow(told);
      else if (!whole || told.number > whole.number) ask(); // a message was missed
    }
  }
  soon();
}
function begin(told) {
  newest = told.number;
  whole = {...told, points: told.points.map(p => named(told.fields, p))};
}
function follow(told) {
  if (told.point) whole.points.push(named(whole.fields, told.point));
  whole = {...whole, ...told};
}
let asking = false;
function ask() {
  if (asking) return;
  asking = true;
  fetch("state").then(found => found.json()).then(told => {
    asking = false;
    if (told.number < newest) setTimeout(ask, 300); // older than what has come meanwhile
    else begin(told);
    connected = true;
    soon();
  }).catch(() => { asking = false; });
}
const others = new BroadcastChannel("news");
others.onmessage = event => take(event.data);
function news(kind, text) {
  take({kind, text});
  others.postMessage({kind, text});
}
function listen() {
  const source = new EventSource("events");
  source.addEventListener("whole", event => news("whole", event.data));
  source.addEventListener("step", event => news("step", event.data));
  source.addEventListener("error", () => news("lost"));
}
if (navigator.locks) {
  navigator.locks.request("listener", () => { listen(); return new Promise(() => {}); });
  ask();
} else listen();
