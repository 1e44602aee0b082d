// Keys, copy buttons, times in the browser's zone, charts, and what is said when nobody answers.
"use strict";
(() => {
  const content = () => document.getElementById("content");

  // Times: the server writes UTC, people read their own zone; the title keeps UTC.
  const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const long = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const whole = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  function showTimes(root) {
    const now = new Date();
    for (const each of root.querySelectorAll("time[datetime]")) {
      const at = new Date(each.getAttribute("datetime"));
      if (isNaN(at) || each.dataset.keep) continue;  // an age; its title has the time
      const form = each.dataset.clock || at.toDateString() === now.toDateString() ? short : at.getFullYear() === now.getFullYear() ? long : whole;
      const text = form.format(at);
      if (each.textContent !== text) each.textContent = text;
    }
  }

  // Charts: the numbers come as JSON; colours are those of the style sheet.
  const drawn = new WeakMap(), numbers = new WeakMap(), asking = new WeakSet();
  // Below a chart stands what it ends with, until somebody points at another place.
  function showLast(chart) { chart.setLegend({ idx: chart.data[0].length - 1 }, false); }
  async function drawChart(box) {
    if (asking.has(box)) return;
    asking.add(box);
    try {
      const answer = await fetch(box.dataset.chart, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.status);
      numbers.set(box, await answer.json());
    } catch (problem) {
      return;  // what is drawn stays
    } finally {
      asking.delete(box);
    }
    if (box.isConnected) paint(box);
  }
  // Draws what was told, or puts it into the chart that is there.
  function paint(box) {
    const told = numbers.get(box), before = drawn.get(box);
    box.dataset.note = told.note || "";
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    if (!told.columns.length || told.columns[0].length < 2) {
      box.replaceChildren(Object.assign(document.createElement("div"), { className: "chart-empty", textContent: "The first points come within half a minute." }));
      drawn.delete(box);
      return;
    }
    const only = box.dataset.only ? box.dataset.only.split(",") : null;
    const keep = told.names.map((name, at) => at).filter((at) => at === 0 || !only || only.includes(told.names[at]));
    const columns = keep.map((at) => told.columns[at]);
    if (before) {
      before.setData(columns);
      showLast(before);
      return;
    }
    const number = (value) => value == null ? "–" : value >= 100 ? Math.round(value).toLocaleString() : String(Math.round(value * 100) / 100);
    const clock = (_, values) => values.map((at) => short.format(new Date(at * 1000)).slice(0, told.columns[0].at(-1) - told.columns[0][0] < 240 ? 8 : 5));
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const lines = keep.slice(1).map((at, place) => ({
      label: told.names[at],
      stroke: colour(at > 1 ? "--line-2" : "--line-1"),
      fill: place ? undefined : colour(at > 1 ? "--line-2" : "--line-1") + "18",
      width: 1.5,
      scale: told.names[at] === box.dataset.right ? "right" : "y",
      value: (_, value) => number(value),
      points: { show: false },
    }));
    const floor = (_, low, high) => [0, Math.max(1, high * 1.1)];
    box.replaceChildren();
    const chart = new uPlot({
      width: box.clientWidth, height: 165, padding: [8, 26, 0, 0], cursor: { y: false },
      scales: { y: { range: floor }, right: { range: floor } },
      axes: [{ ...axis, values: clock, space: 70, size: 30 }, { ...axis, size: 56, values: (_, values) => values.map(number) }, ...(box.dataset.right ? [{ ...axis, side: 1, scale: "right", size: 50, grid: { show: false }, values: (_, values) => values.map(number) }] : [])],
      series: [{ label: "at", value: (_, at) => at == null ? "" : short.format(new Date(at * 1000)) }, ...lines],
      hooks: { setCursor: [(chart) => { if (chart.cursor.idx == null) showLast(chart); }] },
    }, columns, box);
    showLast(chart);
    drawn.set(box, chart);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    // At once, from what was told last: until it is asked for again, light lines would stand on a dark sheet.
    for (const box of document.querySelectorAll("[data-chart]")) if (drawn.delete(box)) paint(box);
  });
  function drawCharts(root) { for (const box of root.querySelectorAll("[data-chart]")) drawChart(box); }
  addEventListener("resize", () => {
    for (const box of document.querySelectorAll("[data-chart]")) {
      const chart = drawn.get(box);
      if (chart) chart.setSize({ width: box.clientWidth, height: 165 });
    }
  });

  // Said for a moment at the foot.
  let saying;
  function tell(text) {
    const box = document.getElementById("told");
    box.textContent = text;
    box.classList.add("shown");
    clearTimeout(saying);
    saying = setTimeout(() => box.classList.remove("shown"), 1600);
  }

  // Copy.
  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
      tell("copied");
      if (button) { button.classList.add("done"); setTimeout(() => button.classList.remove("done"), 1200); }
    } catch (problem) { tell("the browser did not let us copy"); }
  }

  // Refreshes: not while somebody types or marks text; what is missed three times is old.
  let missed = 0, since = 0, isPaused = false;
  const isBusy = () => {
    const at = document.activeElement;
    const types = at && content().contains(at) && at.matches("input:not([type=checkbox]), textarea, select");
    return types || !getSelection().isCollapsed || document.querySelector("dialog[open]");
  };
  document.addEventListener("htmx:before:request", (event) => {
    if (event.target !== content() || event.detail.ctx === undefined) return;
    const kind = event.detail.ctx.sourceEvent && event.detail.ctx.sourceEvent.type;
    if (kind === "load" || kind === "refresh") return;
    if (content().querySelector("h1") && !content().querySelector(":scope > .bar") && (isPaused || isBusy() || document.hidden)) event.preventDefault();
  });
  function lose(why) {
    missed += 1;
    since = since || Date.now();
    const box = content();
    let note = box.querySelector(":scope > .lost");
    if (!note) {
      note = document.createElement("div");
      note.className = "note silent lost";
      note.setAttribute("role", "status");
      box.prepend(note);
    }
    note.textContent = `The dashboard does not answer (${why}) since ${short.format(new Date(since))}; what is below was seen before. It is asked again by itself.`;
    if (missed >= 3) box.classList.add("old");
  }
  // A request that was given up is told below; the browser need not tell it again.
  addEventListener("unhandledrejection", (event) => { if (event.reason && event.reason.name === "AbortError") event.preventDefault(); });
  document.addEventListener("htmx:error", (event) => { if (event.target === content()) lose("no connection"); });
  document.addEventListener("htmx:after:request", (event) => {
    if (event.target !== content()) return;
    const status = event.detail.ctx && event.detail.ctx.response && event.detail.ctx.response.status;
    if (status) { missed = 0; since = 0; content().classList.remove("old"); }
  });
  document.addEventListener("htmx:after:swap", () => {
    showTimes(document);
    drawCharts(content());
    mark();
    for (const row of document.querySelectorAll("tbody.tail")) while (row.children.length > 200) row.lastElementChild.remove();
  });
  function refresh() { htmx.trigger(content(), "refresh"); }
  // A page of the server's own making (an error after a form) has no address to refresh.

  // Rows by keyboard.
  let chosen = -1;
  const rows = () => [...content().querySelectorAll("table.rows tbody tr")].filter((row) => row.querySelector("a.name, a.id"));
  function mark() {
    rows().forEach((row, at) => row.classList.toggle("chosen", at === chosen));
  }
  function step(by) {
    const all = rows();
    if (!all.length) return;
    chosen = Math.min(Math.max(chosen + by, 0), all.length - 1);
    mark();
    all[chosen].scrollIntoView({ block: "nearest" });
  }
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const types = event.target.matches("input, textarea, select");
    if (event.key === "Escape" && types) { event.target.blur(); return; }
    if (event.target.id === "find" && event.key === "ArrowDown") {
      const first = document.querySelector("#found a");
      if (first) { first.focus(); event.preventDefault(); }
      return;
    }
    if (types) return;
    if (isGoing) {
      isGoing = false;
      const link = document.querySelector(`.sections a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { link.click(); event.preventDefault(); }
      return;
    }
    const all = rows();
    const acts = {
      "/": () => document.getElementById("find").focus(),
      g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
      j: () => step(1),
      k: () => step(-1),
      r: () => { refresh(); tell("asked again"); },
      p: () => pause(),
      c: () => { if (all[chosen]) copy(all[chosen].dataset.copy || all[chosen].querySelector("a").textContent); },
      "?": () => document.getElementById("keys").showModal(),
    };
    if (event.key === "Enter" && all[chosen] && event.target === document.body) { all[chosen].querySelector("a.name, a.id").click(); event.preventDefault(); return; }
    const act = acts[event.key];
    if (act) { act(); event.preventDefault(); }
  });
  function pause() {
    const button = document.querySelector("[data-pause]");
    if (button) { button.click(); return; }
    isPaused = !isPaused;
    tell(isPaused ? "refreshing is paused" : "refreshing goes on");
    if (!isPaused) refresh();
  }

  // What was opened of late stands in the search box first.
  const RECENT = "bolide-recent";
  const recent = () => { try { return JSON.parse(localStorage.getItem(RECENT)) || []; } catch (problem) { return []; } };
  function remember() {
    const parts = location.pathname.split("/");
    if (parts.length !== 3 || !["topics", "groups", "messages"].includes(parts[1]) || ["create", "check"].includes(parts[2])) return;
    const here = { kind: parts[1].slice(0, -1), name: decodeURIComponent(parts[2]), address: location.pathname };
    localStorage.setItem(RECENT, JSON.stringify([here, ...recent().filter((each) => each.address !== here.address)].slice(0, 8)));
  }
  function showRecent() {
    const box = document.getElementById("found");
    if (document.getElementById("find").value || !recent().length) return;
    const list = document.createElement("ul");
    list.className = "finds";
    for (const each of recent()) {
      const link = document.createElement("a");
      if (!String(each.address).startsWith("/")) continue;
      link.href = each.address;
      const kind = Object.assign(document.createElement("span"), { className: "kind", textContent: each.kind });
      link.append(kind, ` ${each.name}`);
      const item = document.createElement("li");
      item.append(link);
      list.append(item);
    }
    box.replaceChildren(list);
  }

  // Live tail: paused rows are counted, not drawn.
  let held = 0;
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (!document.querySelector("[data-pause].on")) return;
    const counted = /data-count="(\d+)"/.exec(event.detail.message.data);
    if (event.detail.message.event) return;
    held += counted ? Number(counted[1]) : 1;
    document.getElementById("tail-held").textContent = `${held} more`;
    event.preventDefault();
  });
  // A tail that ended says why, and does not look as if nothing came.
  document.addEventListener("done", (event) => {
    const count = document.getElementById("tail-count");
    if (!count || !event.detail) return;
    count.textContent += event.detail.data === "ended" ? ", ended after 30 minutes; reload the page to go on" : `, ended: ${event.detail.data}`;
  });
  document.addEventListener("htmx:sse:close", (event) => { if (event.detail.reason === "message") refreshSoon(event.target); });
  function refreshSoon(element) { if (element.dataset.after) location.assign(element.dataset.after); }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("button, a, input");
    if (!target) return;
    if (target.dataset.copy !== undefined && target.matches("button")) copy(target.dataset.copy, target);
    if (target.dataset.refreshNow) { if (content().getAttribute("hx-get")) refresh(); else history.back(); }
    if (target.id === "keys-button") document.getElementById("keys").showModal();
    if (target.dataset.all) for (const box of document.querySelectorAll(`input[name="${CSS.escape(target.dataset.all)}"]`)) box.checked = target.checked;
    if (target.dataset.pause !== undefined) {
      target.classList.toggle("on");
      target.textContent = target.classList.contains("on") ? "Go on" : "Pause";
      if (!target.classList.contains("on")) { held = 0; document.getElementById("tail-held").textContent = ""; }
    }
  });
  document.addEventListener("focusin", (event) => { if (event.target.id === "find") showRecent(); });

  // On a phone the sections are one line that scrolls: the one that is open is in sight.
  const here = document.querySelector(".sections a[aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "center" });
  showTimes(document);
  drawCharts(document);
  remember();
  setInterval(() => drawCharts(content()), 15000);
})();
