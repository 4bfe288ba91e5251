// Updates the page: it is requested with its ETag, about once a second while it is visible, and main and the navigation are changed where they differ.
(() => {
  "use strict";
  const main = document.getElementById("main"), state = document.getElementById("livestate"), news = document.getElementById("news"), pause = document.getElementById("pause"), more = document.getElementById("more");
  let paused = false, still = main.dataset.still !== undefined; // a question does not change

  // "3 min ago" in place of a time; the exact one is shown when it is pointed at. A unit is used from two of it on.
  const units = [["days", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const relative = (then) => {
    const seconds = Math.round((Date.now() - then) / 1000), far = Math.abs(seconds);
    const [name, size] = units.find(([, size]) => far >= 2 * size) || units[3];
    const text = Math.floor(far / size) + " " + name;
    return seconds >= 0 ? text + " ago" : "in " + text;
  };
  const times = () => {
    for (const t of document.querySelectorAll("time[datetime]")) {
      t.title = t.title || t.textContent;
      const text = relative(Date.parse(t.dateTime));
      if (t.textContent !== text) t.textContent = text;
    }
    for (const b of document.querySelectorAll("button.copy[hidden], input[data-all][hidden]")) b.hidden = false;
    if (held !== null && !holds()) show(held);
  };

  // What scrolls and has nothing to focus takes the focus itself, so that the keyboard can scroll it.
  const scrollers = () => {
    for (const e of document.querySelectorAll(".wide, pre")) {
      const scrolls = e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight;
      if (scrolls && !e.hasAttribute("tabindex") && !e.querySelector("a, button, input, select")) { e.tabIndex = 0; e.dataset.scrolls = ""; }
      else if (!scrolls && "scrolls" in e.dataset) { e.removeAttribute("tabindex"); delete e.dataset.scrolls; }
    }
  };
  addEventListener("resize", scrollers);

  const say = (text, trouble) => {
    if (state.textContent !== text) state.textContent = text;
    document.body.classList.toggle("trouble", !!trouble);
  };
  // Fields that the reader has changed keep their values until the form is sent.
  const edited = new WeakSet();
  main.addEventListener("input", (e) => edited.add(e.target));
  main.addEventListener("reset", (e) => { for (const field of e.target.elements) edited.delete(field); });
  const heading = (of) => of.querySelector("h1")?.textContent.trim().replace(/\s+/g, " ") || "";
  // A list does not move while the reader points at it or has selected rows. Its updates wait.
  const holds = () => main.querySelector(".cards tbody:hover, .todo tbody:hover, td input:checked") !== null;
  let held = null, turned = false; // turned: the reader has followed a link to another part of the page
  const show = (html) => {
    held = null;
    more.hidden = true;
    const title = heading(main), at = document.activeElement, href = at && main.contains(at) ? at.getAttribute("href") : null;
    Idiomorph.morph(main, html, {
      morphStyle: "innerHTML", ignoreActiveValue: true, restoreFocus: true,
      callbacks: { beforeNodeMorphed: (node) => !edited.has(node), beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") && !(name === "title" && node.tagName === "TIME") && name !== "style" },
    });
    if (href !== null && document.activeElement.getAttribute("href") !== href) { // a row above it is new or gone
      const same = [...main.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
      (same || main).focus({ preventScroll: true });
    } else if (at && at !== document.body && !at.isConnected) main.focus({ preventScroll: true });
    times();
    scrollers();
    if (heading(main) !== title) news.textContent = heading(main); // read aloud; the rest of the page is not
  };
  more.addEventListener("click", () => { if (held !== null) show(held); });
  main.addEventListener("change", (e) => {
    if (!("all" in e.target.dataset)) return;
    for (const box of e.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) { box.checked = e.target.checked; edited.add(box); }
  });
  // One request at a time; a request that is not the current one any more is ignored.
  let request = null, timer = 0, tag = "none", unchanged = 0;
  const poll = async () => {
    const own = request = new AbortController();
    const slow = setTimeout(() => say("Not up to date: no response for 3 seconds", true), 3000), end = setTimeout(() => own.abort(), 10000);
    let seconds = 2;
    try {
      const res = await fetch(location.pathname + location.search, { headers: { "If-None-Match": tag }, redirect: "manual", signal: own.signal });
      const html = await res.text();
      if (request !== own) return;
      if (res.status === 304) {
        unchanged++;
        say("Live", false);
      } else if (!update(res, html)) return;
      if (res.status < 500) seconds = Math.max(Number(res.headers.get("X-Poll-Interval")), Math.min(1 + unchanged / 10, 2));
    } catch {
      if (request !== own) return;
      say("Not up to date: no response from the server", true);
    } finally {
      clearTimeout(slow);
      clearTimeout(end);
    }
    timer = setTimeout(poll, seconds * 1000);
  };
  // Shows a response. Returns false after the last one.
  const update = (res, html) => {
    const page = new DOMParser().parseFromString(html, "text/html"), now = page.getElementById("main");
    unchanged = 0;
    if (!now || res.status >= 500) {
      const ended = res.status === 0 || res.status === 401; // a redirect to a login, or a login dialog
      say("Not up to date: " + (now ? heading(now) : ended ? "the session has ended; reload the page" : "the server responds with status " + res.status), true);
      return !ended;
    }
    tag = res.headers.get("ETag") || "none";
    say("Live", false);
    document.title = page.title;
    for (const nav of document.querySelectorAll("header nav")) Idiomorph.morph(nav, page.querySelector("header nav")?.innerHTML ?? nav.innerHTML, { morphStyle: "innerHTML" }); // its counts
    if (turned) {
      turned = false;
      show(now.innerHTML);
      document.getElementById(location.hash.slice(1))?.scrollIntoView();
    } else if (holds()) {
      held = now.innerHTML;
      const fresh = [...now.querySelectorAll("tr[id]")].filter((row) => !document.getElementById(row.id)).length;
      more.textContent = fresh ? fresh + " new" : "Show changes";
      more.hidden = false;
    } else show(now.innerHTML);
    still = now.dataset.still !== undefined;
    if (still) { say("", false); pause.hidden = true; }
    return !still;
  };
  const start = () => { if (!request && !paused && !still && !document.hidden) poll(); };
  const stop = () => {
    clearTimeout(timer);
    if (request) request.abort();
    request = held = null;
    more.hidden = true;
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    if (paused) { stop(); say("Paused", false); } else start();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else start(); });
  document.addEventListener("click", (e) => {
    const copy = e.target.closest("button.copy");
    if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  });
  // A link to another part of the same page changes what differs, without a load of the page.
  const jump = () => { stop(); tag = "none"; turned = true; poll(); };
  document.addEventListener("click", (e) => {
    const link = e.target.closest("a[data-soft]");
    if (!link || still || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    jump();
  });
  addEventListener("popstate", () => { if (!still) jump(); });
  // Ctrl and the wheel zoom a graph.
  main.addEventListener("wheel", (e) => {
    const graph = e.ctrlKey && e.target.closest("svg.graph");
    if (!graph) return;
    e.preventDefault();
    graph.style.zoom = Math.min(3, Math.max(0.2, (graph.style.zoom || 1) * (e.deltaY < 0 ? 1.15 : 0.87)));
  }, { passive: false });
  // "/" goes to the search; in a list j and k go to the next and previous row, x selects it, and enter follows its link.
  document.addEventListener("keydown", (e) => {
    if (!["/", "j", "k", "x"].includes(e.key) || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input:not([type=checkbox]), textarea, select")) return;
    e.preventDefault();
    if (e.key === "/") return document.getElementById("search").focus();
    const rows = [...main.querySelectorAll("tbody tr[id]")], at = rows.indexOf(e.target.closest("tr"));
    if (e.key === "x") return rows[at]?.querySelector("input[type=checkbox]")?.click();
    rows[at + (e.key === "j" ? 1 : at < 0 ? 0 : -1)]?.querySelector("a[href]")?.focus();
  });

  times();
  scrollers();
  setInterval(times, 1000);
  if (still) return;
  pause.hidden = false;
  timer = setTimeout(start, 1000);
})();
