"use strict";
(function () {
  var root = document.documentElement;
  root.classList.add("js");
  function all(selector, inside) { return Array.prototype.slice.call((inside || document).querySelectorAll(selector)); }

  // Light or dark: the system's choice until the reader makes one.
  var toggle = document.getElementById("theme");
  if (toggle) {
    var dark = function () {
      var chosen = root.getAttribute("data-theme");
      return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    };
    var label = function () { toggle.textContent = dark() ? "Light" : "Dark"; };
    toggle.addEventListener("click", function () { root.setAttribute("data-theme", dark() ? "light" : "dark"); label(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
    toggle.classList.remove("hidden");
    label();
  }

  // Findings: filter and sort.
  var table = document.getElementById("findings-table"), more = document.getElementById("f-more");
  if (table) {
    var body = table.tBodies[0], rows = all("tr", body);
    var cell = function (row, n) { return row.cells[n].textContent; };
    rows.forEach(function (row, n) { row.order = n; });
    var text = document.getElementById("f-text"), code = document.getElementById("f-code"), pipeline = document.getElementById("f-pipeline");
    var levels = all("input[name=f-level]"), shown = document.getElementById("f-shown"), none = document.getElementById("f-none");
    var limit = 60; // rows at once; the page stays short, and the rest is one tap away
    var filter = function () {
      var words = text.value.toLowerCase().split(/\s+/).filter(Boolean), on = {}, count = 0;
      levels.forEach(function (box) { on[box.value] = box.checked; });
      rows.forEach(function (row) {
        var content = row.textContent.toLowerCase();
        var keep = on[cell(row, 0)] && (!code.value || cell(row, 1) === code.value) &&
          (!pipeline.value || (row.dataset.pipeline || cell(row, 2)) === pipeline.value) &&
          words.every(function (word) { return content.indexOf(word) >= 0; });
        count += keep ? 1 : 0;
        row.classList.toggle("hidden", !keep || count > limit);
      });
      shown.textContent = count === rows.length ? "" : count + " of " + rows.length + " match";
      more.textContent = "Show all " + count;
      more.parentNode.classList.toggle("hidden", count <= limit);
      none.classList.toggle("hidden", count > 0);
    };
    more.addEventListener("click", function () { limit = Infinity; filter(); });
    [text, code, pipeline].concat(levels).forEach(function (field) {
      field.addEventListener("input", filter);
      field.addEventListener("change", filter);
    });
    all("th button", table).forEach(function (button) {
      button.addEventListener("click", function () {
        var th = button.parentNode, index = th.cellIndex, down = th.getAttribute("aria-sort") === "ascending";
        all("th", table).forEach(function (other) { other.removeAttribute("aria-sort"); });
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        var key = function (row) { return index ? cell(row, index).trim() : String(row.order); }; // levels: the worst first
        rows.sort(function (a, b) {
          var x = key(a), y = key(b);
          if (x === "" || y === "") { return (x === "" ? 1 : 0) - (y === "" ? 1 : 0); } // nothing stands last, both ways
          return x.localeCompare(y, "en", { numeric: true }) * (down ? -1 : 1);
        });
        rows.forEach(function (row) { body.appendChild(row); });
        filter();
      });
    });
    filter(); // a browser may restore the fields when the page is loaded again
  }

  // Pipelines: search, and fifty at once.
  var pipelines = document.getElementById("pipelines-table");
  if (pipelines) {
    var wanted = document.getElementById("p-text"), all_of = document.getElementById("p-more"), lines = all("tbody tr", pipelines), most = 50;
    var find = function () {
      var words = wanted.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
      lines.forEach(function (line) {
        var content = line.textContent.toLowerCase(), keep = words.every(function (word) { return content.indexOf(word) >= 0; });
        count += keep ? 1 : 0;
        line.classList.toggle("hidden", !keep || count > most);
      });
      document.getElementById("p-shown").textContent = count === lines.length ? "" : count + " of " + lines.length + " match";
      all_of.textContent = "Show all " + count;
      all_of.parentNode.classList.toggle("hidden", count <= most);
    };
    wanted.addEventListener("input", find);
    all_of.addEventListener("click", function () { most = Infinity; find(); });
    find();
  }

  // Checks: by status.
  var statuses = all("input[name=c-status]"), named = document.getElementById("c-text"), checks = all(".check, .checks > p");
  var pick = function () {
    var on = {}, words = named ? named.value.toLowerCase().split(/\s+/).filter(Boolean) : [], count = 0;
    statuses.forEach(function (box) { on[box.value] = box.checked; });
    checks.forEach(function (check) {
      var content = words.length ? check.textContent.toLowerCase() : "";
      var keep = on[(check.querySelector(".badge") || check.firstChild).textContent] && words.every(function (word) { return content.indexOf(word) >= 0; });
      count += keep ? 1 : 0;
      check.classList.toggle("hidden", !keep);
    });
    if (named) { document.getElementById("c-shown").textContent = count === checks.length ? "" : count + " of " + checks.length + " match"; }
    all(".check-group").forEach(function (group) {
      group.classList.toggle("hidden", all(".check:not(.hidden), .checks > p:not(.hidden)", group).length === 0);
    });
  };
  statuses.forEach(function (box) { box.addEventListener("input", pick); });
  if (named) { named.addEventListener("input", pick); }
  if (statuses.length) { pick(); }

  // A link to something that is folded away or filtered out shows it.
  var reveal = function () {
    var name = location.hash.slice(1), target;
    try { target = document.getElementById(name) || document.getElementById(decodeURIComponent(name)); } catch (error) { return; }
    if (!target) { return; }
    for (var at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") { at.open = true; }
      if (/\b(check|check-group)\b/.test(at.className)) { at.classList.remove("hidden"); }
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) { reveal(); }

  // Commands: copy one.
  all(".command").forEach(function (box) {
    var button = box.querySelector(".copy"), text = box.querySelector("code").textContent;
    var done = function () { button.textContent = "Copied"; setTimeout(function () { button.textContent = "Copy"; }, 1500); };
    button.classList.remove("hidden");
    button.addEventListener("click", function () {
      if (navigator.clipboard && isSecureContext) { navigator.clipboard.writeText(text).then(done, select); } else { select(); }
    });
    // Where the browser lets no page write to the clipboard, the command is selected for the reader to copy.
    function select() { getSelection().selectAllChildren(box.querySelector("code")); button.textContent = "Selected"; }
  });

  // Charts: a tap shows what a tooltip shows.
  all(".pick-area").forEach(function (area) {
    area.addEventListener("click", function (event) {
      var at = event.target;
      while (at && at !== area && !(at.querySelector && at.querySelector(":scope > title"))) { at = at.parentNode; }
      if (at && at !== area) { area.querySelector(".picked").textContent = at.querySelector(":scope > title").textContent; }
    });
    // By keyboard: the arrow keys go from one thing in the chart to the next.
    all("[role=img]", area).forEach(function (chart) {
      var titles = all("title", chart), now = -1, ring = null;
      if (!titles.length) { return; }
      chart.setAttribute("tabindex", "0");
      chart.addEventListener("keydown", function (event) {
        var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Home") { now = 0; } else if (event.key === "End") { now = titles.length - 1; }
        else if (step) { now = Math.min(Math.max(now + step, 0), titles.length - 1); } else { return; }
        event.preventDefault();
        if (ring) { ring.classList.remove("at"); }
        ring = titles[now].parentNode;
        ring.classList.add("at");
        area.querySelector(".picked").textContent = titles[now].textContent + " (" + (now + 1) + " of " + titles.length + ")";
      });
      chart.addEventListener("blur", function () { if (ring) { ring.classList.remove("at"); } });
    });
  });

  // What scrolls sideways can be scrolled by keyboard.
  var scrollers = function () {
    all(".scroll").forEach(function (box) {
      if (box.scrollWidth > box.clientWidth) { box.setAttribute("tabindex", "0"); } else { box.removeAttribute("tabindex"); }
    });
  };
  addEventListener("resize", scrollers);
  addEventListener("toggle", scrollers, true);
  scrollers();

  // On paper nothing is folded away.
  var opened = [];
  addEventListener("beforeprint", function () {
    opened = all("details:not([open])");
    opened.forEach(function (d) { d.open = true; });
  });
  addEventListener("afterprint", function () { opened.forEach(function (d) { d.open = false; }); });
})();
