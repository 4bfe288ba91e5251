// Updates the page: the server sends the content of main as an event each time that it changes.
(() => {
  "use strict";
  const main = document.getElementById("main"), state = document.getElementById("livestate"), news = document.getElementById("news"), pause = document.getElementById("pause"), more = document.getElementById("more");
  let source = null, paused = false;

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
  const heading = () => main.querySelector("h1")?.textContent.trim().replace(/\s+/g, " ") || "";
  // A list does not move while the reader points at it or has selected rows. Its updates wait.
  const holds = () => main.querySelector("[data-hold] tbody:hover, [data-hold] input:checked") !== null;
  let held = null;
  const show = (html) => {
    held = null;
    more.hidden = true;
    const title = heading(), at = document.activeElement, href = at && main.contains(at) ? at.getAttribute("href") : null;
    Idiomorph.morph(main, html, {
      morphStyle: "innerHTML", ignoreActiveValue: true, restoreFocus: true,
      callbacks: { beforeNodeMorphed: (node) => !edited.has(node), beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS") && !(name === "title" && node.tagName === "TIME") },
    });
    if (href !== null && document.activeElement.getAttribute("href") !== href) { // a row above it is new or gone
      const same = [...main.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
      (same || main).focus({ preventScroll: true });
    } else if (at && at !== document.body && !at.isConnected) main.focus({ preventScroll: true });
    times();
    scrollers();
    if (heading() !== title) news.textContent = heading(); // read aloud; the rest of the page is not
  };
  more.addEventListener("click", () => { if (held !== null) show(held); });
  main.addEventListener("change", (e) => {
    if (!("all" in e.target.dataset)) return;
    for (const box of e.target.closest("table").querySelectorAll("tbody input[type=checkbox]")) { box.checked = e.target.checked; edited.add(box); }
  });
  const follow = () => {
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("main", (e) => {
      say("Live", false);
      if (!holds()) return show(e.data);
      held = e.data;
      const rows = new DOMParser().parseFromString(held, "text/html").querySelectorAll("[data-hold] tr[id]");
      const fresh = [...rows].filter((row) => !document.getElementById(row.id)).length;
      more.textContent = fresh + " new";
      more.hidden = fresh === 0;
    });
    source.addEventListener("trouble", (e) => say("Not up to date: " + e.data, true));
    source.onerror = () => {
      // An answer that is an error ends the source for good.
      const refused = source && source.readyState === EventSource.CLOSED;
      if (!refused || !document.body.classList.contains("trouble")) silent();
      if (!refused) return;
      stop();
      why();
      setTimeout(() => { if (!source && !paused && !document.hidden) follow(); }, 5000);
    };
  };
  const silent = () => say("Not up to date: the server does not answer; trying again", true);
  // A source does not tell which answer ended it, such as that too many pages are open: the server is asked once more.
  const why = async () => {
    const ask = new AbortController();
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/event-stream" }, signal: ask.signal });
      if (answer.ok) return ask.abort();
      const plain = answer.headers.get("Content-Type")?.startsWith("text/plain"), text = plain ? (await answer.text()).trim() : "the server answers " + answer.status;
      if (!source && !paused) say("Not up to date: " + text + "; trying again", true);
    } catch {
      if (!source && !paused) silent();
    }
  };
  const stop = () => { if (source) source.close(); source = held = null; more.hidden = true; };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    if (paused) { stop(); say("Paused", false); } else follow();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else if (!paused && !source && main.dataset.still === undefined) follow(); });
  document.addEventListener("click", (e) => {
    const copy = e.target.closest("button.copy");
    if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  });
  document.addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    e.preventDefault();
    document.getElementById("search").focus();
  });

  times();
  scrollers();
  setInterval(times, 1000);
  if (main.dataset.still !== undefined) return; // a question does not change
  pause.hidden = false;
  follow();
})();
