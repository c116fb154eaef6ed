/* The dashboard's own script: live parts, relative times, charts, graphs, dialogs, keys. No library but uPlot, for charts. */
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const mountedAt = document.body.dataset.root; // where the dashboard is mounted: "/ops/jobs", or ""

  /* -- times: the same words as words.py ------------------------------------------------------------------------- */

  const skew = Number(document.body.dataset.now || Date.now()) - Date.now(); // the server's clock decides
  const now = () => Date.now() + skew;

  function rough(seconds) {
    for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]])
      if (seconds >= unit) return Math.floor(seconds / unit) + " " + name;
    return Math.floor(seconds) + " s";
  }
  function tellTimes(root = document) {
    for (const time of all("time[datetime]:not([data-exact])", root)) {
      const seconds = (now() - Date.parse(time.dateTime)) / 1000;
      const length = rough(Math.abs(seconds));
      const text = "age" in time.dataset ? rough(Math.max(0, seconds))
        : Math.abs(seconds) < 1 ? "now" : seconds > 0 ? length + " ago" : "in " + length;
      if (time.textContent !== text) time.textContent = text;
    }
    for (const span of all("[data-since]", root)) { // inside a drawing there is no <time>
      const text = rough(Math.max(0, (now() - Date.parse(span.dataset.since)) / 1000));
      if (span.textContent !== text) span.textContent = text;
    }
  }

  /* -- live: the new part is laid over the old one, so that focus, typed text and open things stay ----------------- */

  // What identifies a node among its siblings; forms and buttons that open dialogs are identified by what they do.
  const keyOf = (node) => node.nodeType !== 1 ? "" : node.id || node.dataset.key || (node.dataset.dialog && "opens " + node.dataset.dialog)
    || (node.nodeName === "FORM" && node.getAttribute("action")) || "";
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return; // its text is ours
    if (old.dataset.since && old.dataset.since === fresh.dataset.since) return; // so is this
    if (old.nodeName === "DIALOG" && old.open) return; // it is in use
    morphAttributes(old, fresh);
    if (!("keep" in old.dataset)) morphChildren(old, fresh);
  }
  function morphAttributes(old, fresh) {
    const mine = old.nodeName === "DETAILS" ? ["open"] : old.nodeName === "INPUT" ? ["value", "checked"] : [];
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && !mine.includes(name) && name !== "data-htmx-powered") old.removeAttribute(name);
    for (const { name, value } of [...fresh.attributes])
      if (old.getAttribute(name) !== value && !mine.includes(name)) old.setAttribute(name, value);
    // Untouched fields follow the server; what was typed or ticked stays.
    if (old.nodeName === "INPUT" && old.value === old.defaultValue) old.defaultValue = old.value = fresh.defaultValue;
  }
  // A node that is moved loses the focus, and a dialog in it closes. So where only what is gone lies before a node that
  // stays, that goes first, and the node stays where it is.
  function morphChildren(old, fresh) {
    const byKey = new Map([...old.children].map((child) => [keyOf(child), child]).filter(([key]) => key));
    const wanted = new Set([...fresh.children].map(keyOf).filter((key) => key));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const match = matchOf(child, at, byKey.get(keyOf(child)));
      if (!match) { old.insertBefore(child, at); continue; }
      byKey.delete(keyOf(child)); // a second one of the same key is another
      if (match !== at && isGone(at, match, wanted)) at = drop(at, match);
      if (match !== at) old.insertBefore(match, at); else at = at.nextSibling;
      morph(match, child);
    }
    drop(at, null);
  }
  function matchOf(child, at, kept) {
    if (keyOf(child)) return kept && alike(kept, child) ? kept : null;
    if (at && alike(at, child)) return at;
    if (child.nodeType === 1) for (let next = at; next; next = next.nextSibling) if (alike(next, child)) return next;
    return null;
  }
  function isGone(at, until, wanted) {
    for (; at && at !== until; at = at.nextSibling) if (wanted.has(keyOf(at))) return false;
    return at === until;
  }
  function drop(at, until) {
    while (at !== until) { const next = at.nextSibling; at.remove(); at = next; }
    return until;
  }

  // What is on the page is live only if the service said so lately: it sends something after every rendering. Silence
  // means that the service, the way to it or its store is gone, and the page cannot know which.
  const pulse = $("#pulse"), SILENT = 5000;
  const stream = { heard: Date.now(), resumed: 0, state: "", trouble: "", why: "" };
  function tellPulse() {
    if (!pulse || !stream.state) return;
    const silent = Date.now() - stream.heard, stale = stream.state !== "paused" && Date.now() - Math.max(stream.heard, stream.resumed) >= SILENT;
    const [state, words] = stream.trouble ? ["trouble", stream.trouble] : stale ? ["stale", "stale since " + rough(silent / 1000)]
      : [stream.state, { live: "live", lost: "reconnecting", paused: "paused" }[stream.state]];
    pulse.hidden = false;
    pulse.dataset.state = state;
    pulse.title = state === "trouble" ? words : state === "stale" ? stream.why || "No update arrived since then; the page shows what was last known." : "";
    const text = $(".words", pulse);
    if (text.textContent !== words) text.textContent = words;
  }
  function hear(changes) {
    Object.assign(stream, changes);
    tellPulse();
  }
  function follow(part) {
    let source = null, closed = false, polls = false;
    const open = () => {
      if (source || document.hidden || closed) return;
      source = new EventSource(mountedAt + "/live?page=" + encodeURIComponent(location.pathname.slice(mountedAt.length) + location.search));
      const good = () => hear({ heard: Date.now(), state: "live", trouble: "", why: "" });
      source.addEventListener("open", () => hear({ state: "live" }));
      source.addEventListener("live", (event) => { swap(part, event.data); good(); });
      source.addEventListener("same", good);
      source.addEventListener("stale", (event) => hear({ why: event.data }));
      source.addEventListener("trouble", (event) => hear({ trouble: event.data }));
      // A server that cannot keep a stream open ends it after each event, and the browser connects again by itself.
      source.addEventListener("poll", () => { polls = true; });
      source.addEventListener("error", () => {
        if (polls && source.readyState === EventSource.CONNECTING) { polls = false; return; }
        hear({ state: "lost", trouble: "" });
        if (source.readyState !== EventSource.CLOSED) return; // it connects again by itself
        source = null; // refused: the page itself says why, when it is asked for again
        setTimeout(() => { if (!document.hidden) again(); }, 5000);
      });
    };
    const again = async () => {
      try {
        const reply = await fetch(location.href, { method: "HEAD" });
        if (reply.redirected) { closed = true; location.reload(); return; }
      } catch (e) { /* away: try later */ }
      open();
    };
    const close = () => { if (source) source.close(); source = null; hear({ state: "paused", trouble: "" }); };
    const resume = () => { if (stream.state === "paused") hear({ state: "lost", resumed: Date.now() }); open(); };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : resume()));
    addEventListener("pagehide", close);
    addEventListener("pageshow", resume);
    open();
  }
  function swap(part, html) {
    const fresh = new DOMParser().parseFromString(html, "text/html").querySelector("[data-live]");
    if (!fresh) return;
    const focused = document.activeElement, around = [];
    for (let node = focused; part.contains(node) && node !== part; node = node.parentElement) around.push(node);
    morph(part, fresh);
    settle(part);
    if (around.length && !focused.isConnected) refocus(around.find((node) => node.isConnected) || part);
    part.dispatchEvent(new CustomEvent("accoda:live", { bubbles: true }));
  }
  // What had the focus is no more ("Pause" became "Resume"): what stands in its place gets it, and not the whole page.
  function refocus(home) {
    const next = all("button, a[href], input, select", home).find((node) => node.getClientRects().length);
    (next || $("#main")).focus();
  }
  function settle(root) {
    tellTimes(root);
    drawCharts(root);
    zoomGraph();
    if (window.htmx) htmx.process(root);
  }

  /* -- charts: data blocks beside an empty box -------------------------------------------------------------------- */

  const drawn = new Map();
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const units = {
    "s": (v) => v == null ? "–" : !v ? "0" : v < 0.001 ? (v * 1e6).toFixed(0) + " µs" : v < 1 ? +(v * 1e3).toPrecision(3) + " ms"
      : v < 90 ? +v.toPrecision(3) + " s" : v < 5400 ? +(v / 60).toPrecision(3) + " min" : +(v / 3600).toPrecision(3) + " h",
    "/s": (v) => v == null ? "–" : !v ? "0" : +v.toPrecision(3) + "/s",
    "": (v) => v == null ? "–" : Math.abs(v) >= 1e6 ? +(v / 1e6).toPrecision(3) + "M" : Math.abs(v) >= 1e4 ? +(v / 1e3).toPrecision(3) + "k" : String(+v.toPrecision(6)),
  };
  const day = "\n{D} {MMM}", clock = "{HH}:{mm}"; // uPlot: a tick's text, and what is added where a year, day, … begins
  const ticks = [
    [86400, "{D} {MMM}", null, null, null, null, null, null, 1],
    [3600, clock, day, null, day, null, null, null, 1],
    [60, clock, day, null, day, null, null, null, 1],
    [1, clock + ":{ss}", day, null, day, null, null, null, 1],
  ];
  const tall = (width) => Math.max(184, Math.min(280, Math.round(width / 3)));
  function options(data, width) {
    const grid = { stroke: css("--line"), width: 1 }, text = css("--soft");
    const axis = { stroke: text, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const tell = units[data.unit || ""] || ((v) => v == null ? "–" : v + " " + data.unit);
    // A value between two gaps is no line: it is drawn as a dot, unless it is zero, where a dot would look like an event.
    const alone = (plot, at) => plot.data[at].flatMap((v, n, line) => v && line[n - 1] == null && line[n + 1] == null ? [n] : []);
    const line = (each) => ({
      label: each.label, stroke: css("--" + each.color), width: 1.5, points: { show: false, filter: alone, size: 5, fill: css("--" + each.color) },
      spanGaps: !!each.span,
      fill: each.fill ? css("--" + each.color + "-fill") : undefined, value: (_, v) => tell(v),
      dash: each.dash ? [4, 4] : undefined,
    });
    return {
      width, height: tall(width), tzDate: (ts) => new Date(ts * 1e3),
      cursor: { y: false, points: { size: 7 }, sync: { key: "accoda" } }, legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : data.least || 1] } },
      series: [{ label: "at", value: "{D} {MMM} {HH}:{mm}:{ss}" }, ...data.series.map(line)],
      axes: [{ ...axis, space: 70, values: ticks }, { ...axis, size: 62, values: (_, ticks) => ticks.map(tell) }],
    };
  }
  function drawCharts(root = document, anew = false) {
    if (!window.uPlot) return;
    for (const [figure, entry] of drawn) if (!figure.isConnected) { entry.plot.destroy(); drawn.delete(figure); }
    for (const figure of all("[data-chart]", root)) {
      const text = $("script", figure).textContent, box = $(".plot", figure), before = drawn.get(figure);
      if (before && before.text === text && !anew) continue;
      const data = JSON.parse(text), columns = [data.x, ...data.series.map((each) => each.values)];
      const shape = data.series.map((each) => each.label).join() + data.unit;
      if (before && before.shape === shape && !anew) {
        before.plot.setData(columns);
        before.text = text;
        continue;
      }
      if (before) before.plot.destroy();
      const plot = new uPlot(options(data, box.clientWidth || 600), columns, box);
      drawn.set(figure, { plot, text, shape });
    }
  }
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => {
      for (const [figure, { plot }] of drawn) {
        const width = $(".plot", figure).clientWidth;
        if (width) plot.setSize({ width, height: tall(width) });
      }
      zoomGraph();
    });
  });

  /* -- the graph of a flow: zoom, and what there is to say of a box ---------------------------------------------------- */

  // Until it is zoomed by hand the graph fits its box, as far as it can be read then. The server draws it in full size,
  // so the size is set again after each update.
  const zoom = { by: 0, scale: 0, least: 0.1, most: 3, readable: 0.8 };
  function fitting(box, drawing) {
    return Math.min(1, box.clientWidth / drawing.viewBox.baseVal.width, box.clientHeight / drawing.viewBox.baseVal.height);
  }
  function zoomGraph(x = null, y = null) {
    const box = $(".graph-box"), drawing = box && $("svg", box);
    if (!drawing) return;
    const { width, height } = drawing.viewBox.baseVal, before = zoom.scale;
    const at = [x ?? box.clientWidth / 2, y ?? box.clientHeight / 2], old = [box.scrollLeft, box.scrollTop];
    zoom.scale = zoom.by || Math.max(zoom.readable, fitting(box, drawing));
    drawing.setAttribute("width", Math.round(width * zoom.scale));
    drawing.setAttribute("height", Math.round(height * zoom.scale));
    if (!before) box.scrollTop = (height * zoom.scale - box.clientHeight) / 2; // columns are centered
    else if (zoom.scale !== before) [box.scrollLeft, box.scrollTop] = at.map((px, n) => (old[n] + px) * zoom.scale / before - px);
  }
  function zoomTo(by, x, y) {
    zoom.by = Math.min(zoom.most, Math.max(zoom.least, by));
    zoomGraph(x, y);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]"), box = $(".graph-box");
    if (!button || !box) return;
    zoomTo({ fit: fitting(box, $("svg", box)), in: zoom.scale * 1.25, out: zoom.scale / 1.25 }[button.dataset.zoom]);
  });
  // The wheel alone scrolls, as everywhere on the page; a pinch is a wheel with Ctrl.
  $("#main").addEventListener("wheel", (event) => {
    const box = event.target.closest(".graph-box");
    if (!box || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const place = box.getBoundingClientRect();
    zoomTo(zoom.scale * Math.exp(-event.deltaY / 400), event.clientX - place.left, event.clientY - place.top);
  }, { passive: false });
  const tip = Object.assign(document.createElement("p"), { className: "graph-tip", hidden: true, ariaHidden: "true" });
  document.body.append(tip); // outside of the live part; readers of the screen have the label itself
  function tellNode(event) {
    const node = event.target.closest?.(".node");
    tip.hidden = !node || event.type === "focusout" || event.type === "pointerout";
    if (tip.hidden) return;
    tip.textContent = node.getAttribute("aria-label");
    const place = node.getBoundingClientRect(), below = place.bottom + 6;
    tip.style.left = Math.max(8, Math.min(place.left, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (below + tip.offsetHeight < innerHeight ? below : Math.max(8, place.top - tip.offsetHeight - 6)) + "px";
  }
  for (const name of ["pointerover", "pointerout", "focusin", "focusout"]) document.addEventListener(name, tellNode);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { capture: true, passive: true });

  /* -- light and dark ------------------------------------------------------------------------------------------------ */

  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => drawCharts(document, true));
  $("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const is = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = is === "dark" ? "light" : "dark";
    try { localStorage.setItem("accoda-theme", root.dataset.theme); } catch (e) { /* for this page only */ }
    drawCharts(document, true);
  });

  /* -- dialogs, forms, messages ---------------------------------------------------------------------------------------- */

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) $("#" + CSS.escape(opener.dataset.dialog)).showModal();
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    if (event.target.nodeName === "DIALOG") event.target.close(); // outside of it
    const ticker = event.target.closest("[data-tick-all]");
    if (ticker) for (const box of all(ticker.dataset.tickAll)) box.checked = ticker.checked;
  });
  document.addEventListener("submit", (event) => {
    const dialog = event.target.closest("dialog");
    if (dialog && event.target.method === "post") setTimeout(() => dialog.close());
    const button = event.submitter;
    if (button) { button.setAttribute("aria-busy", "true"); setTimeout(() => button.removeAttribute("aria-busy"), 1500); }
  });
  // An action that got no answer may have been carried out or not: the connection broke, nothing came in time (see
  // htmx-config in base.html), or a proxy answered instead of the service.
  function tellUnanswered(form) {
    const name = form.querySelector("button:not([type=button])")?.textContent.trim() || "the action";
    const line = Object.assign(document.createElement("p"), { className: "said wrong" });
    line.textContent = `The server did not answer. Nothing is known about “${name}”: check whether it took effect before you repeat it.`;
    said.replaceChildren(line);
  }
  document.addEventListener("htmx:error", (event) => {
    const request = event.detail.ctx;
    if (request && request.text === undefined) tellUnanswered(request.sourceElement);
  });
  document.addEventListener("htmx:before:response", (event) => {
    const request = event.detail.ctx;
    if (request.response.status !== 502 && request.response.status !== 504) return;
    event.preventDefault();
    tellUnanswered(request.sourceElement);
  });
  // A choice that filters (data-submit) sends its form by itself.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  const said = $("#said");
  let quiet = 0;
  function tellSaid() {
    clearTimeout(quiet);
    const line = $(".said", said);
    if (line && !line.classList.contains("wrong")) quiet = setTimeout(() => line.remove(), 8000);
  }
  new MutationObserver(tellSaid).observe(said, { childList: true });

  /* -- keys -------------------------------------------------------------------------------------------------------------- */

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select, [contenteditable]")) return;
    if (event.target.closest("dialog")) return;
    const key = event.key;
    if (before === "g" && key.length === 1) {
      before = "";
      const link = $(`header nav a[data-key="${CSS.escape(key === "q" ? "o" : key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    before = key === "g" ? "g" : "";
    if (before) setTimeout(() => (before = ""), 1500);
    if (key === "/") { const filter = $("[data-filter]"); if (filter) { event.preventDefault(); filter.focus(); filter.select?.(); } }
    if (key === "?") { event.preventDefault(); $("#keys").showModal(); }
  });

  /* -- a link from elsewhere brings no cookie: one that is there is found by asking again from here ---------------------------- */

  const login = $("[data-login]");
  if (login && !$("#wrong")) {
    const to = login.dataset.login;
    fetch(to, { method: "HEAD" }).then((reply) => { if (reply.ok && !reply.redirected) location.replace(to); }, () => {});
  }

  $('header nav a[aria-current]')?.scrollIntoView({ block: "nearest", inline: "center" }); // on a telephone it may be beyond the edge
  tellSaid();
  tellTimes();
  drawCharts();
  zoomGraph();
  setInterval(() => { if (!document.hidden) { tellTimes(); tellPulse(); } }, 1000);
  const part = $("[data-live]");
  if (part) follow(part);
})();
