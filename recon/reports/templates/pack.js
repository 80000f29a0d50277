"use strict";
// Verifies a pack: signatures (Ed25519), hashes (SHA-256), Merkle proofs (RFC 6962), numbers. Nothing leaves the page.
// Everything that the reader sees is written here, from the data: whatever else the file holds is taken away first.
// recon/audits/verify_pack.py says the same in Python, sentence by sentence.
(() => {
  // An element can have the name of a function of `document` and hide it: called by its prototype until all are gone.
  const all = (selector) => Array.from(Document.prototype.querySelectorAll.call(document, selector), (one) => one.textContent);
  const packed = all("script#data"), given = all("pre#given"), styles = all("style");
  // What follows in the file is not read, and where it would lead the browser to, it does not go.
  window.stop();
  const clear = () => Document.prototype.replaceChildren.call(document);
  clear();

  const WORDS = { right: "right", compare: "right for the key in this file", unproved: "not proved", wrong: "WRONG" };
  const STATES = Object.keys(WORDS);
  const FIGURES = {
    batches: "Micro-batches", offsets: "Offsets", rows_written: "Rows written", rows_filtered: "Rows filtered",
    rows_quarantined: "Rows quarantined",
  };
  const LEAF = Uint8Array.of(0), NODE = Uint8Array.of(1), LINE = Uint8Array.of(10);

  // -- bytes and texts

  const bytes = (text) => new TextEncoder().encode(text);
  const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
  const plain = (text) => (BASE64.test(text) ? Uint8Array.from(atob(text), (c) => c.charCodeAt(0)) : new Uint8Array());
  const hex = (data) => Array.from(data, (b) => b.toString(16).padStart(2, "0")).join("");
  const joined = (...parts) => {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) { whole.set(part, at); at += part.length; }
    return whole;
  };
  const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
  const number = (value) => value.toLocaleString("en-US");
  const count = (value, one, many) => number(value) + " " + (value === 1 ? one : many);
  const when = (micros) => new Date(Math.floor(micros / 1000)).toISOString().slice(0, 19).replace("T", " ") + " UTC";
  // Control and direction characters as escapes: text can neither hide nor reorder what stands beside it.
  const visible = (text) => String(text).slice(0, 2000).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");

  class Wrong extends Error {}
  class OtherKey extends Wrong {}
  const need = (condition, sentence) => { if (!condition) throw new Wrong(sentence); };
  const worst = (states) => STATES[Math.max(0, ...states.map((state) => STATES.indexOf(state)))];

  // -- the data

  const isText = (value) => typeof value === "string";
  const isTexts = (value) => Array.isArray(value) && value.every(isText);
  const isTime = (value) => Number.isInteger(value) && value >= 0 && value < 253402300800000000;

  async function unpacked() {
    need(packed.length === 1, "this file has " + packed.length + " parts with data");
    const stream = new Blob([plain(packed[0])]).stream().pipeThrough(new DecompressionStream("gzip"));
    let data = null;
    try { data = JSON.parse(await new Response(stream).text()); } catch { need(false, "the data of this file are damaged"); }
    const ofChain = (chain) => chain && typeof chain === "object" && isTexts(chain.texts) && isTexts(chain.path) &&
      [chain.pipeline, chain.sink, chain.note, chain.reason, chain.answer].every(isText) &&
      [chain.before, chain.after].every((text) => text === null || isText(text)) &&
      Number.isSafeInteger(chain.begin) && chain.begin >= 0;
    need(data && data.format === 2, "this page reads another format than its data have");
    need(isText(data.project) && isText(data.recon_version) && isTime(data.made) && isTexts(data.keys) &&
      Array.isArray(data.period) && data.period.length === 2 && data.period.every(isTime) &&
      Array.isArray(data.chains) && data.chains.every(ofChain), "the data of this file are not as recon writes them");
    const names = new Set(data.chains.map((chain) => JSON.stringify([chain.pipeline, chain.sink])));
    need(names.size === data.chains.length, "the data of this file have a sink twice");
    return data;
  }

  async function publicKey(text) {
    const found = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/s.exec(text);
    need(found, "this is no public key");
    const [, name, id, content] = found, raw = plain(content);
    const whole = hex((await sha256(bytes(name), LINE, raw)).slice(0, 4));
    need(raw.length === 33 && raw[0] === 1 && whole === id, "the parts of this key do not belong together");
    return { name, id, raw: raw.slice(1) };
  }

  // -- signed heads

  // What a note says, once one of the keys has signed it; `given` is whether the reader gave them.
  async function opened(note, keys, given) {
    const end = note.lastIndexOf("\n\n"), whole = "the signed note is not whole";
    need(end > 0 && note.endsWith("\n") && note.isWellFormed(), whole);
    const body = note.slice(0, end + 1), lines = note.slice(end + 2).split("\n").slice(0, -1);
    need(lines.length > 0 && lines.length <= 16, whole);
    let known = false;
    for (const line of lines) {
      const found = /^— (\S+) (\S+)$/.exec(line);
      need(found, whole);
      const raw = plain(found[2]);
      const key = keys.find((one) => one.name === found[1] && one.id === hex(raw.slice(0, 4)));
      if (!key) continue;
      const imported = await crypto.subtle.importKey("raw", key.raw, { name: "Ed25519" }, false, ["verify"]);
      need(await crypto.subtle.verify({ name: "Ed25519" }, imported, raw.slice(4), bytes(body)),
        "the signature does not match the head");
      known = true;
    }
    if (!known) throw new OtherKey("none of the keys " + (given ? "that you entered" : "in this file") + " signed this head");
    return headOf(body);
  }

  function headOf(body) {
    const lines = body.split("\n").slice(0, -1), names = lines[0].split("/");
    const times = lines.slice(3).filter((line) => line.startsWith("at ")).map((line) => line.slice(3));
    need(lines.length > 3 && names.length > 2 && /^(0|[1-9][0-9]{0,14})$/.test(lines[1]) && plain(lines[2]).length === 32 &&
      times.length === 1 && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(times[0]), "what is signed is no head");
    const [pipeline, sink] = names.slice(-2);
    return {
      origin: lines[0], ledger: names.slice(0, -2).join("/"), pipeline, sink, size: Number(lines[1]),
      root: hex(plain(lines[2])), at: Date.parse(times[0]) * 1000,
    };
  }

  // -- entries

  function entryOf(text, at) {
    const cut = text.indexOf("\n"), none = "entry " + (at + 1) + " in this file is none";
    let entry, ranges;
    try { entry = JSON.parse(text.slice(0, cut)); ranges = JSON.parse(text.slice(cut + 1)); } catch { need(false, none); }
    need(cut > 0 && entry && typeof entry === "object" && Array.isArray(ranges), none);
    const whole = (value) => Number.isInteger(value) || need(false, none);
    [entry.sequence, entry.epoch, entry.batch_id, entry.committed_at].forEach(whole);
    const counts = [entry.rows_written, entry.rows_filtered, entry.rows_quarantined, entry.rows_removed ?? null];
    counts.filter((value) => value !== null).forEach(whole);
    const spans = [];
    for (const range of ranges) {
      need(Array.isArray(range) && range.length === 6 && isText(range[1]), none);
      const [, topic, , partitions, starts, ends] = range;
      need([partitions, starts, ends].every((one) => Array.isArray(one) && one.length === ends.length), none);
      ends.forEach((end, place) => { whole(end); whole(starts[place]); spans.push({ topic, size: end - starts[place] }); });
    }
    return { ...entry, spans };
  }

  // The root over `leaves`, which begin at leaf `begin`, and the subtrees beside them.
  async function rootOf(leaves, begin, size, path) {
    const beside = path.map(plain);
    const walk = async (low, high) => {
      if (high <= begin || low >= begin + leaves.length) {
        need(beside.length, "the proof is too short");
        return beside.shift();
      }
      if (high - low === 1) return leaves[low - begin];
      let half = 1;
      while (half * 2 < high - low) half *= 2;
      const left = await walk(low, low + half);
      return sha256(NODE, left, await walk(low + half, high));
    };
    const root = await walk(0, size);
    need(!beside.length, "the proof is too long");
    return hex(root);
  }

  // -- numbers

  // The figures of the compliance report, from the entries alone; null, and why, where one is not known.
  function figuresOf(entries) {
    const written = entries.filter((entry) => entry.status !== "already_committed");
    const read = written.filter((entry) => entry.epoch >= 0 || entry.epoch === -2);
    const known = (value) => ({ value, unknown: "" }), unknown = (reason) => ({ value: null, unknown: reason });
    const total = (values) => {
      const sum = values.reduce((one, other) => one + other, 0);
      if (!values.every(Number.isSafeInteger) || !Number.isSafeInteger(sum)) throw new Error("numbers of this size");
      return known(sum);
    };
    const sum = (of, value) => {
      const values = of.map(value), missing = values.filter((one) => one === null).length;
      return missing ? unknown(number(missing) + " of " + count(of.length, "entry", "entries") + " did not count them") : total(values);
    };
    const spans = read.flatMap((entry) => entry.spans), kafka = spans.filter(({ topic }) => !/^(delta|files):/.test(topic));
    return {
      batches: known(new Set(read.filter((entry) => entry.epoch >= 0).map((entry) => entry.epoch + "/" + entry.batch_id)).size),
      offsets: kafka.length || !spans.length ? total(kafka.map(({ size }) => Math.max(size, 0))) : unknown("what was read is no topic of Kafka"),
      rows_written: sum(written, (entry) => (entry.rows_written === null ? null : entry.rows_written - (entry.rows_removed ?? 0))),
      rows_filtered: read.some((entry) => (" " + (entry.transform ?? "")).includes(" routes:"))
        ? unknown("the sink is a route, where records of other routes count as filtered")
        : sum(read, (entry) => entry.rows_filtered),
      rows_quarantined: sum(read, (entry) => entry.rows_quarantined),
    };
  }

  // -- one sink: each check gives a state and a sentence

  async function judged(check) {
    try { return await check(); } catch (error) {
      if (error instanceof Wrong) return { state: "wrong", text: error.message, otherKey: error instanceof OtherKey };
      return { state: "unproved", text: "this browser cannot check it (" + error.message + ")" };
    }
  }
  const unproved = (text) => ({ state: "unproved", text });

  async function verified(chain, keys, given, period) {
    const right = given ? "right" : "compare", checks = {};
    const texts = [...(chain.before === null ? [] : [chain.before]), ...chain.texts, ...(chain.after === null ? [] : [chain.after])];
    const first = chain.before === null ? 0 : 1;
    let head = null, entries = null, covered = 0, figures = null;
    checks.signature = await judged(async () => {
      if (!chain.note) return unproved("there is no signed head");
      let found;
      try { found = await opened(chain.note, keys, given); } catch (error) {
        if (error instanceof OtherKey && !given) return unproved(error.message);
        throw error;
      }
      need(found.pipeline === chain.pipeline && found.sink === chain.sink, "the head is of another pipeline or sink");
      head = found;
      return { state: right, text: head.origin + ", " + count(head.size, "entry", "entries") + ", signed " + when(head.at) };
    });
    checks.entries = await judged(async () => {
      const found = texts.map(entryOf), hashes = [];
      for (const [at, entry] of found.entries()) {
        need(entry.pipeline === chain.pipeline && entry.sink === chain.sink, "entry " + (at + 1) + " in this file is of another pipeline or sink");
        need(at === 0 || entry.prev_hash === hashes[at - 1], "entry " + (at + 1) + " in this file does not follow the one before it");
        hashes.push(hex(await sha256(bytes(texts[at]))));
      }
      entries = found;
      if (!texts.length) return unproved("this file has no entry");
      if (!head) return unproved("no signed head leads to them");
      need(chain.begin < head.size, "the entries are behind the head");
      covered = Math.min(texts.length, head.size - chain.begin);
      const leaves = await Promise.all(hashes.slice(0, covered).map((hash) => sha256(LEAF, bytes(hash))));
      need(await rootOf(leaves, chain.begin, head.size, chain.path) === head.root, "the entries do not lead to the head");
      const behind = first + chain.texts.length - covered;
      if (behind > 0) return unproved(number(behind) + " of " + count(chain.texts.length, "entry", "entries") + " came after the head was signed");
      if (!chain.texts.length) return { state: right, text: "none" };
      return { state: right, text: number(chain.begin + first + 1) + " to " + number(chain.begin + first + chain.texts.length) };
    });
    const isUnderHead = STATES.indexOf(worst([checks.signature.state, checks.entries.state])) < 2;
    checks.period = isUnderHead ? await judged(() => ofPeriod()) : unproved("it rests on the entries");
    // Where the period begins and ends: by the entries before and after it.
    function ofPeriod() {
      const [from, to] = period, mine = entries.slice(first, first + chain.texts.length);
      const before = first ? entries[0] : null, after = covered === texts.length && chain.after !== null ? entries.at(-1) : null;
      const outside = mine.filter((entry) => entry.committed_at < from || entry.committed_at >= to).length;
      if (outside) return unproved(count(outside, "entry is", "entries are") + " of a time that is not of the period");
      if (before === null && chain.begin > 0) return unproved("the entry before them is not in this file");
      if (before !== null && before.committed_at >= from) return unproved("the entry before them is of " + when(before.committed_at) + ", not before the period");
      if (after === null && chain.begin + covered < head.size) return unproved("the entry after them is not in this file");
      if (after === null && head.at < to) return unproved("the head was signed " + when(head.at) + ", before the period ends");
      if (after !== null && after.committed_at < to) return unproved("the entry after them is of " + when(after.committed_at) + ", not after the period");
      const said = [
        mine.length ? "committed " + when(mine[0].committed_at) + " to " + when(mine.at(-1).committed_at) : "no entry",
        before === null ? "none before" : "the one before " + when(before.committed_at),
        after === null ? "none after, up to the head" : "the one after " + when(after.committed_at),
      ];
      return { state: right, text: said.join("; ") };
    }
    const state = worst(Object.values(checks).map((check) => (check.otherKey ? "unproved" : check.state)));
    checks.numbers = checks.entries.state === "wrong" ? { state, text: "" } : await judged(async () => {
      figures = figuresOf(entries.slice(first, first + chain.texts.length));
      return { state, text: "" };
    });
    return { chain, checks, figures, head };
  }

  // -- the page

  const el = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const table = (id, label, columns) => {
    const body = el("tbody", { id }), heads = columns.map(([text, kind = ""]) => el("th", { scope: "col", class: kind }, text));
    const region = { class: "wide", tabindex: "0", role: "region", "aria-label": label };
    return [body, el("div", region, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body))];
  };
  const label = (pipeline, sink) => visible(pipeline === sink ? pipeline : pipeline + " → " + sink);
  const say = ({ state, text }) => el("td", { "data-state": state }, WORDS[state] + (text ? ": " + visible(text) : ""));
  const term = (name, text) => [el("dt", {}, name), el("dd", { "data-state": "unchecked" }, visible(text) || "nothing")];

  const answer = el("p", { id: "answer", role: "status", "data-state": "unproved" }, "Not checked yet …");
  const named = el("ul", { id: "named" });
  const key = el("textarea", { id: "key", rows: "2", spellcheck: "false", autocomplete: "off", placeholder: "name+id+base64" });
  const published = el("input", { id: "published", type: "file", multiple: "" });
  const compared = el("ul", { id: "compared", role: "status" });
  const said = el("dl", { id: "said" });
  const [checked, checksTable] = table("checks", "What was checked", [["Sink"], ["Signed head"], ["Entries"], ["Period"]]);
  const columns = [["Sink"], ...Object.values(FIGURES).map((text) => [text, "right"]), ["These numbers are"]];
  const [numbers, numbersTable] = table("numbers", "The numbers", columns);
  const root = el("html", { lang: "en", "data-verified": "" },
    el("head", {}, el("meta", { charset: "utf-8" }), el("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }),
      el("title", {}, "Auditor's pack"), el("link", { rel: "icon", href: "data:," }), ...styles.map((text) => el("style", {}, text))),
    el("body", {}, el("main", { class: "sheet" },
      el("h1", {}, "Auditor's pack"), answer, named,
      el("h2", {}, "The key"),
      el("p", {}, el("label", { for: "key" }, "The public key that you were given, not by this file; several on lines of their own:")), el("p", {}, key),
      el("h2", {}, "What was checked"), checksTable,
      el("h2", {}, "The numbers"), numbersTable,
      el("p", { class: "muted" }, "This page adds the numbers up from the entries."),
      el("h2", {}, "Published heads"),
      el("p", {}, el("label", { for: "published" }, "Documents of heads from the place where they are published, to compare with those of this file:")),
      el("p", {}, published), compared,
      el("h2", {}, "This file says, and nobody signed it: not checked"), said,
      el("h2", {}, "This page itself"),
      el("p", {}, "Whoever sends a file can have changed what checks it, and no page can show that of itself. ", el("code", {}, "recon compliance verify"),
        " checks this file without its script, and compares the script with recon's own. recon's page on signed heads has a hash to compare it with by hand."))));
  const place = () => {
    if (document.firstChild === root && document.lastChild === root) return;
    clear();
    document.append(root);
  };

  let results = [], given_ = false, faults = [];

  function conclude(state, sentence, more = []) {
    answer.dataset.state = state;
    answer.textContent = sentence;
    named.replaceChildren(...more.map((text) => el("li", {}, visible(text))));
    root.dataset.verified = state;
  }

  function summary(complaint) {
    const checks = results.flatMap((one) => Object.values(one.checks)), state = faults.length ? "wrong" : worst(checks.map((one) => one.state));
    const figures = results.flatMap(({ chain, figures }) => Object.entries(figures ?? {}).map(([name, figure]) => ({ ...figure, name, chain })));
    const unknown = figures.filter((figure) => figure.value === null);
    const entries = results.reduce((sum, { chain }) => sum + chain.texts.length, 0), heads = results.filter(({ head }) => head).length;
    const sinks = count(results.length, "sink", "sinks");
    const ledgers = [...new Set(results.flatMap(({ head }) => (head ? [visible(head.ledger)] : [])))];
    const what = count(heads, "signed head", "signed heads") + ", " + count(entries, "entry", "entries") + " and " +
      count(figures.length - unknown.length, "number", "numbers") + " of " + sinks + " of " + ledgers.join(" and ");
    const more = unknown.map(({ chain, name, unknown: why }) => "Not known: " + FIGURES[name].toLowerCase() + " of " + label(chain.pipeline, chain.sink) + " (" + why + ").");
    more.push("Not checked: whether the ledger has other sinks; whether a wrong clock put entries of the period elsewhere in the chain; what this file says below, which nobody signed.");
    const wrong = checks.filter((one) => one.state === "wrong");
    const sentences = {
      right: "Right: " + what + (unknown.length ? "; " + count(unknown.length, "number is", "numbers are") + " not known." : "."),
      compare: "Right for the key in this file: " + what + ". Enter the public key that you were given: a key in a file proves nothing.",
      unproved: "Not everything could be proved.",
      wrong: faults.length ? "Something is wrong: " + faults[0] + "."
        : wrong.some((one) => one.text && !one.otherKey) ? "Something is wrong: this pack is not what was signed."
        : "Nothing is proved: the key that you entered did not sign what this file holds. It is another key, or another signed this file.",
    };
    if (!results.length) conclude("unproved", "There is no sink in this pack.");
    else if (complaint && state !== "wrong") conclude("unproved", "The key that you entered: " + complaint + ".", more);
    else conclude(state, sentences[state], more);
  }

  function draw() {
    checked.replaceChildren(...results.map(({ chain, checks }) => el("tr", {}, el("th", { scope: "row" }, label(chain.pipeline, chain.sink)),
      say(checks.signature), say(checks.entries), say(checks.period))));
    numbers.replaceChildren(...results.map(({ chain, checks, figures }) => el("tr", {}, el("th", { scope: "row" }, label(chain.pipeline, chain.sink)),
      ...Object.keys(FIGURES).map((name) => el("td", { class: "num right", "data-state": checks.numbers.state, "data-figure": name },
        figures === null ? "—" : figures[name].value === null ? "not known" : number(figures[name].value))),
      say(checks.numbers))));
  }

  const keysOf = async (texts) => Promise.all(texts.map(publicKey));

  async function keysNow(data) {
    const typed = key.value.split(/\s+/).filter(Boolean);
    try {
      if (typed.length) return { keys: await keysOf(typed), given: true, complaint: "" };
      return { keys: await keysOf(data.keys), given: false, complaint: "" };
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      return { keys: [], given: false, complaint: typed.length ? error.message : "" };
    }
  }

  async function verify(data) {
    root.dataset.verified = "";
    const { keys, given, complaint } = await keysNow(data);
    const found = [];
    for (const chain of data.chains) found.push(await verified(chain, keys, given, data.period));
    [results, given_, faults] = [found, given, []];
    draw();
    await compare(data, keys);
    place();
    summary(complaint);
  }

  // Heads that the reader fetched from the place where they are published.
  async function compare(data, keys) {
    const lines = [], line = (state, text) => lines.push(el("li", { "data-state": state }, visible(text))), same = given_ ? "right" : "compare";
    for (const file of published.files) {
      const text = await file.text();
      let notes = [text];
      try { if (text.trimStart().startsWith("{")) notes = JSON.parse(text).notes; } catch { notes = null; }
      if (!isTexts(notes)) { line("unproved", file.name + ": it is no document of heads"); continue; }
      for (const note of notes) {
        let other;
        try { other = await opened(note, keys, given_); } catch (error) { line("unproved", file.name + ": " + error.message); continue; }
        const mine = results.find(({ head }) => head && head.origin === other.origin)?.head;
        const what = other.origin + ": the head of " + count(other.size, "entry", "entries");
        if (!mine && results.some(({ head }) => head && head.ledger === other.ledger)) line("unproved", what + " is of a sink that is not in this pack");
        else if (!mine) line("unproved", what + " is of another ledger");
        else if (mine.size !== other.size) line("unproved", what + " is not compared: that of this pack has " + number(mine.size));
        else if (mine.root === other.root) line(same, what + " is the same");
        else { line("wrong", what + " is ANOTHER (a fork)"); faults.push("another head of as many entries is published"); }
      }
    }
    compared.replaceChildren(...lines);
  }

  const failed = (error) => {
    place();
    key.disabled = published.disabled = true;
    said.replaceChildren(...term("Text of this file", given.join("\n\n")));
    conclude(error instanceof Wrong ? "wrong" : "unproved", "Nothing was checked: " + visible(error.message) + ".");
  };
  // One after the other: a key may be entered while an earlier one is at work.
  let turn = Promise.resolve();
  const again = (data) => { turn = turn.then(() => verify(data)).catch(failed); };

  place();
  unpacked().then((data) => {
    said.replaceChildren(...term("Project", data.project), ...term("Period that was asked for", when(data.period[0]) + " to " + when(data.period[1])),
      ...term("Made", "by recon " + data.recon_version + ", " + when(data.made)),
      ...data.chains.flatMap((chain) => term("Audits said of " + label(chain.pipeline, chain.sink), chain.answer + (chain.reason ? "; " + chain.reason : ""))),
      ...data.keys.flatMap((text) => term("Key", text)));
    key.addEventListener("change", () => again(data));
    published.addEventListener("change", () => again(data));
    again(data);
  }).catch(failed);
})();
