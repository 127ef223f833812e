/* What the page does: ask for the document, and put it in.

   PROMISE  Whatever comes from a log goes in as text, by textContent: a name or a message is never markup.
            Nothing is changed anywhere, and nobody but the server that served this page is asked.
   FILE     Where the document stands in the page itself (headwater status --web), nothing is asked at all: while it is
            watched, the page is read again.
   TOKEN    In this tab alone (sessionStorage), and in one header; never in an address. */
"use strict";

(() => {
  const NUMBER = new Intl.NumberFormat("en-US");
  const KINDS = [
    ["table", "░", "in the table alone"],
    ["verified", "▒", "in log and table, verified"],
    ["both", "▓", "in log and table, not verified yet"],
    ["log", "█", "in the log alone"],
  ];
  const PAGE_ROWS = 200;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const embedded = byId("document");

  // What is kept for this tab, where a browser lets us keep anything.
  const kept = {
    get(name) { try { return sessionStorage.getItem("headwater." + name); } catch { return null; } },
    set(name, value) {
      try { value === null ? sessionStorage.removeItem("headwater." + name) : sessionStorage.setItem("headwater." + name, value); } catch { /* it is asked for again */ }
    },
  };

  let shown = null; // the document on the page
  let token = kept.get("token");
  let paused = kept.get("paused") === "yes";
  let failures = 0;
  let timer = 0;
  const view = JSON.parse(kept.get("view") || "null") || { filter: "", start: 0, sorts: {} };
  const keepView = () => kept.set("view", JSON.stringify(view));

  // Making elements ---------------------------------------------------------------------------------------------------

  function el(tag, given, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(given || {})) {
      if (value === null || value === undefined || value === false) continue;
      made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((each) => each !== null && each !== undefined).map((each) => (each instanceof Node ? each : document.createTextNode(String(each)))));
    return made;
  }

  function svg(tag, given, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(given || {})) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function put(place, ...children) { place.replaceChildren(...children.filter((each) => each !== null && each !== undefined)); }

  function setText(place, text) { if (place.textContent !== text) place.textContent = text; }

  // Words and figures -------------------------------------------------------------------------------------------------

  const count = (value) => NUMBER.format(value);
  const plural = (value, noun) => count(value) + " " + noun + (value === 1 ? "" : "s");

  function size(bytes) {
    let value = bytes;
    for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
      if (value < 1000 || unit === "TB") return (unit === "B" || value >= 99.5 ? Math.round(value) : value.toFixed(1)) + " " + unit;
      value /= 1000;
    }
  }

  function short(value) {
    if (value < 10000) return NUMBER.format(Math.round(value));
    for (const [unit, of] of [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]]) {
      if (value < of * 999.5 || unit === "T") return (value / of).toFixed(value / of < 99.5 ? 1 : 0) + " " + unit;
    }
  }

  function rate(value) {
    if (value === null || value === undefined) return "–";
    return value === 0 ? "0" : value < 10 ? value.toFixed(1) : short(value);
  }

  function seconds(value) {
    if (value < 1) return value > 0 ? "under 1 s" : "0 s";
    if (value < 100) return Math.round(value) + " s";
    if (value < 7200) return Math.round(value / 60) + " min";
    if (value < 172800) return Math.round(value / 3600) + " h";
    return Math.round(value / 86400) + " d";
  }

  const two = (value) => String(value).padStart(2, "0");
  function clock(ms) { const at = new Date(ms); return two(at.getUTCHours()) + ":" + two(at.getUTCMinutes()) + ":" + two(at.getUTCSeconds()); }
  function utc(ms) { return new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC"; }

  // A browser's clock may be wrong: what "ago" means is told by the clock of the document.
  let skewMs = 0;
  const now = () => Date.now() + skewMs;
  const ago = (ms) => (now() - ms < 1500 ? "just now" : seconds((now() - ms) / 1000) + " ago");

  function when(text) {
    const ms = Date.parse(text);
    const today = utc(now()).slice(0, 10) === utc(ms).slice(0, 10);
    return el("time", { datetime: text, class: "nowrap", title: utc(ms) }, (today ? "" : utc(ms).slice(5, 10) + " ") + clock(ms), el("span", { class: "under", "data-ago": ms }, ago(ms)));
  }

  // Tables ------------------------------------------------------------------------------------------------------------

  // A table keeps its rows by their keys, and changes only cells that say something else: what a person has selected,
  // or hovers over, stays as it is while figures move.
  class Table {
    constructor(place, options) {
      this.place = byId(place);
      this.name = place;
      this.options = options;
      this.rows = new Map();
      this.table = null;
      this.empty = null;
    }

    get sort() { return view.sorts[this.name] || this.options.sort; }

    draw(items) {
      if (!items.length) {
        const text = this.options.empty();
        if (this.empty !== text.join("\n")) {
          this.empty = text.join("\n");
          this.table = null;
          this.rows.clear();
          put(this.place, el("div", { class: "empty" }, el("strong", {}, text[0]), text[1] ? text[1] : null, text[2] ? el("div", {}, el("code", {}, text[2])) : null));
        }
        return;
      }
      if (!this.table) this.begin();
      this.empty = null;
      const ordered = this.options.remote ? items : this.sorted(items);
      const folded = this.options.few && !this.unfolded && ordered.length > this.options.few;
      const wanted = folded ? ordered.slice(0, this.options.few) : ordered;
      this.more.hidden = !folded;
      setText(this.more, "Show all " + count(ordered.length));
      const body = this.table.tBodies[0];
      const seen = new Set();
      wanted.forEach((item, place) => {
        const key = this.options.key(item);
        seen.add(key);
        let row = this.rows.get(key);
        if (!row) {
          row = { tr: el("tr", { role: "row" }, ...this.options.columns.map((column) => el("td", { role: "cell", class: [column.num ? "num" : "", column.class || ""].join(" ").trim() || null, "data-label": column.label }))), said: [] };
          this.rows.set(key, row);
        }
        this.options.columns.forEach((column, number) => {
          const said = JSON.stringify(column.of ? column.of(item) : column.cell(item));
          if (row.said[number] === said) return;
          row.said[number] = said;
          const cell = column.cell(item);
          row.tr.cells[number].classList.toggle("none", cell === null);
          put(row.tr.cells[number], cell === null ? null : cell instanceof Node ? cell : document.createTextNode(String(cell)));
        });
        if (body.rows[place] !== row.tr) body.insertBefore(row.tr, body.rows[place] || null);
      });
      for (const [key, row] of this.rows) if (!seen.has(key)) { row.tr.remove(); this.rows.delete(key); }
      this.heads();
    }

    begin() {
      this.rows.clear();
      this.heading = this.options.columns.map((column) => {
        const head = el("th", { scope: "col", role: "columnheader", class: column.num ? "num" : null });
        if (column.by) {
          const button = el("button", { type: "button" }, column.label);
          button.addEventListener("click", () => this.turn(column));
          head.append(button);
        } else head.append(column.label);
        return head;
      });
      this.table = el("table", { role: "table", "aria-labelledby": this.name + "-head" }, el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...this.heading)), el("tbody", { role: "rowgroup" }));
      this.more = el("button", { type: "button", class: "more", hidden: true });
      this.more.addEventListener("click", () => {
        const next = this.options.few;
        this.unfolded = true;
        draw(shown);
        // Whoever came here by keyboard goes on with the first row that was not there before.
        const row = this.table.tBodies[0].rows[next];
        if (row) { row.tabIndex = -1; row.focus(); }
      });
      put(this.place, this.table, this.more);
    }

    heads() {
      this.options.columns.forEach((column, number) => {
        const sort = this.sort;
        if (!column.by) return;
        if (sort.by === column.by) this.heading[number].setAttribute("aria-sort", sort.falling ? "descending" : "ascending");
        else this.heading[number].removeAttribute("aria-sort");
      });
    }

    turn(column) {
      const sort = this.sort;
      // Figures are first shown from the largest, names from the first.
      const falling = sort.by === column.by ? !sort.falling : Boolean(column.num || column.falls);
      view.sorts[this.name] = { by: column.by, falling };
      if (this.name === "topics") view.start = 0;
      keepView();
      draw(shown);
      if (this.options.remote) ask();
    }

    sorted(items) {
      const sort = this.sort;
      const column = this.options.columns.find((each) => each.by === sort.by);
      if (!column) return items;
      const value = column.value || ((item) => item[column.by]);
      const order = (one, other) => { const a = value(one), b = value(other); return a < b ? -1 : a > b ? 1 : 0; };
      return [...items].sort((one, other) => (sort.falling ? -order(one, other) : order(one, other)));
    }
  }

  const named = (name, under) => el("span", {}, el("span", { class: "name" }, name), under ? el("span", { class: "under" }, under) : null);
  const mono = (text) => el("span", { class: "mono" }, text);
  const data = () => (shown && shown.log.directory && /^[\w./:@-]+$/.test(shown.log.directory) ? shown.log.directory : "DATA");

  function lag(item) {
    if (!item.landing) return item.table ? el("span", { class: "dim" }, "–") : null;
    const landing = item.landing;
    if (landing.halted) return el("span", { class: "no" }, "halted", el("span", { class: "under" }, landing.halted));
    if (!landing.lag_rows) return el("span", { class: "ok" }, "✓ none");
    return el("span", {}, seconds(landing.lag_s), el("span", { class: "under" }, plural(landing.lag_rows, "row")));
  }

  function lsnText(item) {
    const whole = item.landing.lsns.reduce((sum, each) => sum + each, 0) || 1;
    const parts = KINDS.map(([, , meaning], place) => [item.landing.lsns[place], meaning]).filter(([lsns]) => lsns);
    return parts.map(([lsns, meaning]) => { const share = Math.round((100 * lsns) / whole); return (share || "under 1") + " % " + meaning; }).join(", ");
  }

  function lsnMap(item) {
    if (!item.landing) return null;
    const lsns = item.landing.lsns;
    const whole = lsns.reduce((sum, each) => sum + each, 0);
    if (!whole) return null;
    // What there is of a kind, however little, has a place; the largest pays for it.
    const widths = lsns.map((each) => (each ? Math.max((1000 * each) / whole, 12) : 0));
    widths[widths.indexOf(Math.max(...widths))] += 1000 - widths.reduce((sum, each) => sum + each, 0);
    const label = "LSN 1 to " + count(whole) + " of " + item.name + ": " + lsnText(item);
    // The picture is as wide as its cell: percentages, because a pattern must not be stretched.
    const drawn = svg("svg", { class: "lsns", role: "img", "aria-label": label }, Object.assign(svg("title", {}), { textContent: label }));
    let from = 0;
    widths.forEach((width, place) => {
      if (width) drawn.append(svg("rect", { class: "kind-" + KINDS[place][0], x: from / 10 + "%", width: width / 10 + "%", y: 0, height: "100%" }));
      from += width;
    });
    return drawn;
  }

  const topics = new Table("topics", {
    remote: true,
    sort: { by: "name", falling: false },
    key: (item) => item.name,
    empty: () => view.filter ? ["No topic has “" + view.filter + "” in its name", "Clear the filter to see all of them."]
      : shown.reader.everything ? ["No topics yet", "The first one is made by", "headwater topic create orders --schema 'order_id:int64' --data " + data()]
      : ["No topics for this token", "It has no right over any topic that is here."],
    columns: [
      { label: "Topic", by: "name", class: "lead", of: (item) => [item.name, item.table], cell: (item) => named(item.name, item.table ? "→ " + item.table : item.key.length ? "key " + item.key.join(", ") : null) },
      { label: "Rows", num: true, by: "rows", cell: (item) => count(item.rows) },
      { label: "Bytes", num: true, by: "bytes", cell: (item) => size(item.bytes) },
      { label: "Rows/s", num: true, by: "rows_per_s", value: (item) => item.rows_per_s || 0, cell: (item) => rate(item.rows_per_s) },
      { label: "Parts", num: true, class: "num wide-only", cell: (item) => count(item.partitions) },
      { label: "Landed LSN", num: true, class: "num", of: (item) => item.landing && item.landing.landed_lsn, cell: (item) => (item.landing ? (item.landing.landed_lsn ? count(item.landing.landed_lsn) : "–") : null) },
      { label: "Lag", num: true, by: "lag_s", value: (item) => (item.landing ? item.landing.lag_s : -1), of: (item) => [item.landing, item.table], cell: lag },
      { label: "LSN map", class: "map", of: (item) => item.landing && item.landing.lsns, cell: lsnMap },
      { label: "Audited", num: true, class: "num", of: (item) => item.landing && item.landing.audited_at, cell: (item) => (item.landing && item.landing.audited_at ? el("time", { datetime: item.landing.audited_at, title: utc(Date.parse(item.landing.audited_at)), "data-ago": Date.parse(item.landing.audited_at) }, ago(Date.parse(item.landing.audited_at))) : item.landing ? el("span", { class: "dim" }, "never") : null) },
    ],
  });

  const landings = new Table("landings", {
    few: 12,
    sort: { by: "at", falling: true },
    key: (item) => item.commit_id,
    empty: () => shown.totals.tables ? ["No landings yet", "What is in the log goes into its tables with", "headwater land --data " + data()] : ["No landings yet", "A topic that is made with --table NAME lands in an Iceberg table:", "headwater land --data " + data()],
    columns: [
      { label: "When", by: "at", falls: true, class: "long", of: (item) => item.at, cell: (item) => when(item.at) },
      { label: "Topic", by: "topic", class: "lead", of: (item) => [item.topic, item.table], cell: (item) => named(item.topic, "→ " + item.table) },
      { label: "Rows", num: true, by: "rows", cell: (item) => count(item.rows) },
      { label: "LSN", num: true, by: "lsn_to", cell: (item) => count(item.lsn_from + 1) + " – " + count(item.lsn_to) },
      { label: "Digest", class: "long", of: (item) => item.digest, cell: (item) => mono(item.digest) },
      { label: "Snapshot", class: "long wide-only", of: (item) => item.snapshot, cell: (item) => mono(item.snapshot) },
      { label: "Read back", of: (item) => [item.verified_at, item.adopted], cell: (item) => el("span", { class: item.verified_at ? "ok" : "soon" }, item.verified_at ? "✓ verified" : "not yet", item.adopted ? el("span", { class: "under" }, "adopted") : null) },
    ],
  });

  const groups = new Table("groups", {
    few: 10,
    sort: { by: "lag", falling: true },
    key: (item) => item.group + "\n" + item.topic,
    empty: () => ["No consumer groups yet", "A group is there once a member has joined it:", "log.consumer(\"orders\", group=\"billing\")"],
    columns: [
      { label: "Group", by: "group", class: "lead", of: (item) => [item.group, item.topic], cell: (item) => named(item.group, item.topic) },
      { label: "Lag", num: true, by: "lag", of: (item) => item.lag, cell: (item) => (item.lag ? plural(item.lag, "row") : el("span", { class: "ok" }, "✓ none")) },
      { label: "Members", num: true, by: "members", cell: (item) => count(item.members) },
      { label: "Parts", num: true, cell: (item) => count(item.partitions) },
    ],
  });

  const audits = new Table("audits", {
    few: 10,
    sort: { by: "at", falling: true },
    key: (item) => item.at + "\n" + item.topic,
    empty: () => ["No audits yet", "An audit compares every table with the log:", "headwater audit --data " + data()],
    columns: [
      { label: "When", by: "at", falls: true, class: "long", of: (item) => item.at, cell: (item) => when(item.at) },
      { label: "Topic", by: "topic", class: "lead", of: (item) => [item.topic, item.table], cell: (item) => named(item.topic, item.full ? "in full" : "what is new") },
      { label: "Rows", num: true, by: "rows", cell: (item) => count(item.rows) },
      { label: "To LSN", num: true, by: "lsn_to", cell: (item) => count(item.lsn_to) },
      { label: "Verdict", of: (item) => [item.passed, item.differences], cell: (item) => (item.passed ? el("span", { class: "ok" }, "✓ pass") : el("span", { class: "no" }, "✗ " + plural(item.differences, "difference"))) },
    ],
  });

  // Graphs ------------------------------------------------------------------------------------------------------------

  class Graph {
    constructor(title, place, text, none) {
      this.title = title;
      this.value = (point) => point[place];
      this.text = text;
      this.none = none;
      this.at = null;
      this.reading = el("span", { class: "reading" });
      this.plot = el("div", { class: "plot" });
      this.begin = el("span", {});
      this.peak = el("span", {});
      this.root = el("div", { class: "panel graph" }, el("header", {}, el("h3", {}, title), this.reading), this.plot, el("div", { class: "axis", "aria-hidden": "true" }, this.begin, this.peak, el("span", {}, "now")));
      byId("graphs").append(this.root);
    }

    draw(points, everyS) {
      this.points = points.filter((point) => this.value(point) !== null);
      if (this.points.length < 2) {
        put(this.plot, el("div", { class: "none" }, this.none(everyS)));
        this.root.querySelector(".axis").hidden = true;
        setText(this.reading, this.points.length ? this.text(this.value(this.points[0])) : "");
        this.svg = null;
        return;
      }
      this.root.querySelector(".axis").hidden = false;
      this.last = this.points[this.points.length - 1][0];
      this.first = Math.min(this.points[0][0], this.last - 120000);
      const values = this.points.map(this.value);
      this.most = Math.max(...values);
      const x = (point) => (1000 * (point[0] - this.first)) / (this.last - this.first);
      const y = (value) => 98 - (94 * value) / (this.most || 1);
      let path = "", area = "", before = null;
      for (const point of this.points) {
        // Where nobody looked for a while there is a gap, and no line across it.
        const joined = before !== null && point[0] - before[0] < 6 * everyS * 1000;
        if (!joined && before !== null) area += "L" + x(before).toFixed(1) + " 98Z";
        path += (joined ? "L" : "M") + x(point).toFixed(1) + " " + y(this.value(point)).toFixed(1);
        area += (joined ? "L" : "M" + x(point).toFixed(1) + " 98L") + x(point).toFixed(1) + " " + y(this.value(point)).toFixed(1);
        before = point;
      }
      area += "L" + x(before).toFixed(1) + " 98Z";
      const now = values[values.length - 1];
      const label = this.title + ", " + seconds((this.last - this.points[0][0]) / 1000) + ": now " + this.text(now) + ", least " + this.text(Math.min(...values)) + ", most " + this.text(this.most) + ". Left and right arrows read it point by point.";
      const drawn = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label, tabindex: "0" },
        svg("line", { class: "rule", x1: 0, x2: 1000, y1: 98, y2: 98 }), svg("line", { class: "rule", x1: 0, x2: 1000, y1: 4, y2: 4 }),
        svg("path", { class: "area", d: area }), svg("path", { class: "line", d: path }));
      const focused = this.svg && document.activeElement === this.svg;
      this.svg = drawn;
      this.cursor = svg("line", { class: "cursor", y1: 0, y2: 100, visibility: "hidden" });
      drawn.append(this.cursor);
      drawn.addEventListener("pointermove", (event) => { const box = drawn.getBoundingClientRect(); this.read(this.first + ((event.clientX - box.left) / box.width) * (this.last - this.first)); });
      drawn.addEventListener("pointerleave", () => this.read(null));
      drawn.addEventListener("blur", () => this.read(null));
      drawn.addEventListener("keydown", (event) => this.step(event));
      put(this.plot, drawn);
      setText(this.peak, this.most ? "most " + this.text(this.most) : "");
      setText(this.begin, this.first < this.last - 3540000 ? "1 h ago" : seconds((this.last - this.first) / 1000) + " ago");
      if (focused) drawn.focus();
      this.read(this.at);
    }

    read(ms) {
      this.at = ms;
      if (!this.svg) return;
      if (ms === null) {
        this.cursor.setAttribute("visibility", "hidden");
        setText(this.reading, this.text(this.value(this.points[this.points.length - 1])));
        return;
      }
      const nearest = this.points.reduce((best, point) => (Math.abs(point[0] - ms) < Math.abs(best[0] - ms) ? point : best));
      const x = (1000 * (nearest[0] - this.first)) / (this.last - this.first);
      for (const name of ["x1", "x2"]) this.cursor.setAttribute(name, x);
      this.cursor.setAttribute("visibility", "visible");
      setText(this.reading, clock(nearest[0]) + "  " + this.text(this.value(nearest)));
    }

    step(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") return this.read(null);
      if (!by) return undefined;
      event.preventDefault();
      const from = this.at === null ? this.points.length - 1 : this.points.findIndex((point) => point[0] >= this.at);
      const place = Math.min(Math.max((from < 0 ? this.points.length - 1 : from) + (this.at === null ? 0 : by), 0), this.points.length - 1);
      this.read(this.points[place][0]);
      return undefined;
    }
  }

  const begins = (everyS) => "The graph begins here: a sample every " + everyS + " s.";
  const graphs = [
    new Graph("Rows appended a second", 1, (value) => rate(value), begins),
    new Graph("Oldest row not in its table", 3, seconds, begins),
    new Graph("Rows not in their tables", 2, (value) => short(value), begins),
  ];

  // The rest of the page ----------------------------------------------------------------------------------------------

  function figures(doc) {
    const totals = doc.totals;
    const place = doc.place;
    const tiles = [
      ["topics", count(totals.topics), totals.tables ? plural(totals.tables, "table") : null],
      ["rows in the log", short(totals.rows), size(totals.bytes)],
      ["rows a second", rate(totals.rows_per_s), null],
      ["oldest row not landed", totals.tables ? (totals.lag_rows ? seconds(totals.lag_s) : "none") : "–", totals.lag_rows ? plural(totals.lag_rows, "row") : null],
      ["halted", count(totals.halted), null, totals.halted ? "bad" : null],
      ["durable LSN", count(doc.log.durable_lsn), null],
    ];
    if (place && place.kind === "disk") tiles.push(["free of " + size(place.size_bytes) + " disk", size(place.free_bytes), null]);
    put(byId("figures"), ...tiles.map(([name, value, more, kind]) => el("div", { class: kind || null }, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, " " + more) : null))));
  }

  function halts(doc) {
    const place = byId("halts");
    const said = JSON.stringify(doc.halts);
    if (place.dataset.said === said) return;
    place.dataset.said = said;
    place.hidden = !doc.halts.count;
    const left = doc.halts.count - doc.halts.items.length;
    put(byId("halts-list"), ...doc.halts.items.map((each) =>
      el("article", { class: "halt", "aria-label": each.topic }, el("h3", {}, each.topic + " → " + each.table, "  ", el("span", { class: "cause" }, each.cause)), el("p", { class: "message" }, each.message), el("p", {}, el("strong", {}, "What to do: "), each.next), each.command ? command(each.command) : null)),
      left > 0 ? el("p", { class: "halt" }, "And " + plural(left, "topic") + " more: headwater status names them.") : null);
  }

  function command(text) {
    const button = el("button", { type: "button", "aria-label": "Copy the command" }, "Copy");
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); setText(button, "Copied"); } catch { setText(button, "Select it"); getSelection().selectAllChildren(button.previousElementSibling); }
      setTimeout(() => setText(button, "Copy"), 2000);
    });
    return el("div", { class: "command" }, el("code", {}, text), button);
  }

  function facts(doc) {
    const log = doc.log;
    const place = doc.place;
    const found = [["Log", el("span", { class: "mono" }, log.log_id)], ["Epoch", count(log.epoch) + (log.owner === undefined ? "" : log.owner ? ", owned by this process" : ", owned elsewhere or by nobody")], ["LSN", log.durable_lsn ? count(log.first_lsn) + " – " + count(log.durable_lsn) : "nothing yet"]];
    if (log.directory !== undefined) {
      found.push(["Where", el("span", { class: "mono" }, log.directory)], ["Segments", count(log.segments) + ", " + size(log.bytes)]);
      found.push(["Checkpoint", "LSN " + (log.checkpoint_lsn ? count(log.checkpoint_lsn) : "–") + (log.replay_bytes ? ", " + size(log.replay_bytes) + " behind it" : "")]);
      found.push(["Journal", "LSN " + (log.journal_lsn ? count(log.journal_lsn) : "–") + ", room for " + plural(log.journal_remaining, "operation")]);
      found.push(["Also", [plural(log.producers, "producer"), plural(log.sources, "source"), plural(log.deleted_topics, "deleted topic")].join(", ")]);
    }
    if (place && place.kind === "disk") {
      const used = 100 - (100 * place.free_bytes) / Math.max(place.size_bytes, 1);
      const label = "Disk: " + Math.round(used) + " % used";
      found.push(["Disk", el("span", {}, size(place.free_bytes) + " free of " + size(place.size_bytes), svg("svg", { class: "meter", role: "img", "aria-label": label }, svg("rect", { width: used + "%", height: "100%" })))]);
    }
    if (place && place.kind === "bucket") {
      const owner = place.owner;
      found.push(["Bucket", plural(place.slots, "slot") + " since trim, " + plural(place.kept_segments, "segment") + " before it, window " + count(place.window)]);
      found.push(["Owner", owner ? "pid " + owner.pid + " on " + owner.host + ", " + (owner.alive ? "alive" : "silent") : "nobody"]);
      found.push(["Requests", ["puts", "gets", "lists", "deletes"].map((each) => count(place.requests[each] || 0) + " " + each).join(", ")]);
    }
    found.push(["Version", doc.headwater], ["Seen by", doc.reader.name || "whoever reads its files"]);
    put(byId("log"), ...found.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    put(byId("notes"), doc.notes.length ? el("ul", { "aria-label": "Notes" }, ...doc.notes.map((each) => el("li", {}, "▲ " + each))) : null);
  }

  function head(doc) {
    const state = byId("state");
    const [kind, text] = doc.not_ready ? ["warn", "Not ready: " + doc.not_ready] : doc.totals.halted ? ["bad", "▲ " + count(doc.totals.halted) + " halted"] : ["good", "✓ " + (doc.source === "server" ? "Ready" : "No halts")];
    state.className = "pill " + kind;
    setText(state, text);
    const where = doc.log.directory || "log " + doc.log.log_id.slice(0, 8);
    const place = byId("where");
    if (place.textContent !== where) put(place, el("strong", {}, where));
    document.title = (doc.totals.halted ? "▲ " + doc.totals.halted + " halted · " : "") + "Headwater";
    setText(byId("version"), "Headwater " + doc.headwater + ".");
  }

  // Of a file all topics are here, and are chosen here; a server has chosen them already.
  function chosen(doc) {
    if (doc.source === "server") return { items: doc.topics.items, count: doc.topics.count, start: doc.topics.start };
    const wanted = view.filter.toLowerCase();
    const matching = topics.sorted(doc.topics.items.filter((each) => each.name.toLowerCase().includes(wanted)));
    const start = view.start < matching.length ? view.start : 0;
    return { items: matching.slice(start, start + PAGE_ROWS), count: wanted ? matching.length : doc.topics.count, start };
  }

  const ofShown = (doc, items) => (doc.source === "server" || !view.filter ? items : items.filter((each) => each.topic.toLowerCase().includes(view.filter.toLowerCase())));

  function counted(id, list, noun) {
    setText(byId(id), list.count > list.items.length ? "the latest " + count(list.items.length) + " of " + count(list.count) : list.count ? plural(list.count, noun) : "");
  }

  function draw(doc) {
    if (!doc) return;
    shown = doc;
    byId("all").hidden = false;
    byId("ask").hidden = true;
    byId("forget").hidden = !token;
    head(doc);
    halts(doc);
    figures(doc);
    for (const graph of graphs) graph.draw(doc.history.points, doc.history.every_s);
    const found = chosen(doc);
    topics.draw(found.items);
    setText(byId("topics-count"), (view.filter ? count(found.count) + " with “" + view.filter + "”" : ""));
    byId("legend").hidden = !found.items.some((each) => each.landing);
    const pages = found.count > found.items.length;
    byId("paging").hidden = !pages;
    if (pages) {
      setText(byId("paging-text"), found.items.length ? count(found.start + 1) + " – " + count(found.start + found.items.length) + " of " + count(found.count) : "none of " + count(found.count));
      byId("before").disabled = found.start <= 0;
      byId("after").disabled = found.start + found.items.length >= (doc.source === "server" ? found.count : Math.min(found.count, doc.topics.items.length));
    }
    landings.draw(ofShown(doc, doc.landings.items));
    counted("landings-count", doc.landings, "landing");
    groups.draw(ofShown(doc, doc.groups.items));
    counted("groups-count", doc.groups, "group");
    audits.draw(ofShown(doc, doc.audits.items));
    counted("audits-count", doc.audits, "audit");
    facts(doc);
    tick();
  }

  function tick() {
    for (const each of document.querySelectorAll("[data-ago]")) setText(each, ago(Number(each.dataset.ago)));
    if (!shown) return;
    const at = Date.parse(shown.at);
    const old = now() - at > 15000 && shown.again_s !== null && !paused;
    const text = (paused ? "Paused, " : "") + "as of " + ago(at);
    const place = byId("asof");
    place.className = old ? "old" : "";
    place.title = utc(at);
    setText(place, text);
  }

  // Asking ------------------------------------------------------------------------------------------------------------

  function trouble(text) {
    byId("trouble").hidden = !text;
    setText(byId("trouble"), text || "");
  }

  function askForToken(why) {
    byId("all").hidden = true;
    byId("forget").hidden = !token;
    trouble("");
    setText(byId("asof"), "");
    setText(byId("ask-why"), why);
    const form = byId("ask");
    if (form.hidden) { form.hidden = false; byId("token").focus(); }
  }

  let asking = 0;
  async function ask() {
    if (embedded) return;
    clearTimeout(timer);
    const mine = ++asking;
    const sort = topics.sort;
    const query = new URLSearchParams({ sort: (sort.falling ? "-" : "") + sort.by });
    if (view.filter) query.set("filter", view.filter);
    if (view.start) query.set("from", view.start);
    let answer, found;
    try {
      answer = await fetch("v1/page?" + query, { headers: token ? { Authorization: "Bearer " + token } : {}, cache: "no-store", credentials: "same-origin" });
      found = await answer.json();
    } catch {
      if (mine !== asking) return;
      failures += 1;
      trouble("The server does not answer. " + (shown ? "What is shown was so " + ago(Date.parse(shown.at)) + "; it" : "It") + " is asked again.");
      return later(Math.min(2 * failures, 10));
    }
    if (mine !== asking) return;
    if (answer.status === 401 || answer.status === 403) {
      shown = null;
      return askForToken(token ? "The token was refused: " + found.message : found.message);
    }
    if (!answer.ok) {
      failures += 1;
      trouble(found.message || "The server answered with status " + answer.status + ".");
      return later(Math.min(2 * failures, 10));
    }
    failures = 0;
    trouble("");
    skewMs = Date.parse(found.at) - Date.now();
    draw(found);
    later(found.again_s);
  }

  function later(waitS) {
    clearTimeout(timer);
    if (waitS === null || paused || document.hidden) return;
    timer = setTimeout(ask, waitS * 1000);
  }

  function begin() {
    put(byId("legend"), ...KINDS.map(([kind, sign, meaning]) => el("li", {}, svg("svg", { "aria-hidden": "true" }, svg("rect", { class: "kind-" + kind, width: "100%", height: "100%" })), meaning, el("span", { class: "away" }, " (in a terminal: " + sign + ")"))));
    byId("filter").value = view.filter;
    buttons();
    setInterval(tick, 1000);
    if (!embedded) return void ask();
    const doc = JSON.parse(embedded.textContent);
    // A file may be opened years later: how old it is, is then the truth.
    draw(doc);
    if (doc.again_s !== null && !paused) timer = setTimeout(() => location.reload(), doc.again_s * 1000);
  }

  function buttons() {
    const filter = byId("filter");
    let typing = 0;
    filter.addEventListener("input", () => {
      view.filter = filter.value.trim();
      view.start = 0;
      keepView();
      clearTimeout(typing);
      if (embedded) draw(shown);
      else typing = setTimeout(ask, 200);
    });
    document.addEventListener("keydown", (event) => {
      const inField = event.target instanceof HTMLInputElement;
      if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey && !event.altKey && !byId("all").hidden) { event.preventDefault(); filter.focus(); }
      if (event.key === "Escape" && event.target === filter && filter.value) { filter.value = ""; filter.dispatchEvent(new Event("input")); }
    });
    for (const [id, by] of [["before", -1], ["after", 1]]) byId(id).addEventListener("click", () => {
      view.start = Math.max(view.start + by * PAGE_ROWS, 0);
      keepView();
      embedded ? draw(shown) : ask();
    });
    const pause = byId("pause");
    const sayPause = () => { pause.setAttribute("aria-pressed", String(paused)); setText(pause, paused ? "Go on" : "Pause"); };
    pause.hidden = Boolean(embedded) && JSON.parse(embedded.textContent).again_s === null;
    pause.addEventListener("click", () => {
      paused = !paused;
      kept.set("paused", paused ? "yes" : null);
      sayPause();
      clearTimeout(timer);
      if (!paused) embedded ? location.reload() : ask();
      tick();
    });
    sayPause();
    const themes = ["auto", "light", "dark"];
    let theme = kept.get("theme") || "auto";
    const sayTheme = () => { setText(byId("theme"), "Theme: " + theme); theme === "auto" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = theme); };
    byId("theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % themes.length]; kept.set("theme", theme); sayTheme(); });
    sayTheme();
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      token = byId("token").value.trim() || null;
      byId("token").value = "";
      kept.set("token", token);
      byId("ask").hidden = true;
      ask();
    });
    byId("forget").addEventListener("click", () => { token = null; kept.set("token", null); shown = null; ask(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused && !embedded) ask(); });
  }

  begin();
})();
