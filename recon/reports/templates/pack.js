"use strict";
// Verifies a pack: signatures (Ed25519), hashes (SHA-256), Merkle proofs (RFC 6962), numbers. Nothing leaves the page.
(() => {
  const WORDS = { right: "right", wrong: "WRONG", unproved: "not proved", compare: "right for the key in this file" };
  const $ = (id) => document.getElementById(id);
  const bytes = (text) => new TextEncoder().encode(text);
  const plain = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const hex = (data) => Array.from(data, (b) => b.toString(16).padStart(2, "0")).join("");
  const joined = (...parts) => {
    const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) { all.set(part, at); at += part.length; }
    return all;
  };
  const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
  const LEAF = Uint8Array.of(0), NODE = Uint8Array.of(1), LINE = Uint8Array.of(10);
  class Wrong extends Error {}
  const need = (condition, sentence) => { if (!condition) throw new Wrong(sentence); };

  async function publicKey(text) {
    const parts = text.trim().split("+");
    need(parts.length >= 3, "this is no public key");
    const [name, id] = parts;
    let raw;
    try { raw = plain(parts.slice(2).join("+")); } catch { throw new Wrong("this is no public key"); }
    const whole = hex((await sha256(bytes(name), LINE, raw)).slice(0, 4));
    need(raw.length === 33 && raw[0] === 1 && whole === id, "the parts of this key do not belong together");
    return { name, id, raw: raw.slice(1), text: text.trim() };
  }

  // What a note says, once one of the keys has signed it.
  async function opened(note, keys) {
    const end = note.lastIndexOf("\n\n");
    need(end > 0 && note.endsWith("\n"), "the signed note is not whole");
    const body = note.slice(0, end + 1);
    for (const line of note.slice(end + 2).split("\n").slice(0, -1)) {
      const [dash, name, signature] = line.split(" ");
      need(dash === "—" && signature, "the signed note is not whole");
      const raw = plain(signature);
      const key = keys.find((one) => one.name === name && one.id === hex(raw.slice(0, 4)));
      if (!key) continue;
      const imported = await crypto.subtle.importKey("raw", key.raw, { name: "Ed25519" }, false, ["verify"]);
      need(await crypto.subtle.verify({ name: "Ed25519" }, imported, raw.slice(4), bytes(body)),
        "the signature does not match the head");
      const [origin, size, root, ...more] = body.split("\n").slice(0, -1);
      return { origin, size: Number(size), root: hex(plain(root)), more, key };
    }
    throw new Wrong("none of the keys signed this head");
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

  // The figures of the compliance report, from the entries alone.
  function figuresOf(texts) {
    const batches = new Set(), sums = { offsets: 0, rows_written: 0, rows_filtered: 0, rows_quarantined: 0 };
    const add = (name, value) => { sums[name] = value === null || sums[name] === null ? null : sums[name] + value; };
    for (const text of texts) {
      const cut = text.indexOf("\n");
      const entry = JSON.parse(text.slice(0, cut)), ranges = JSON.parse(text.slice(cut + 1));
      if (entry.status === "already_committed") continue;
      add("rows_written", entry.rows_written === null ? null : entry.rows_written - (entry.rows_removed ?? 0));
      if (entry.epoch < 0 && entry.epoch !== -2) continue;
      if (entry.epoch >= 0) batches.add(entry.epoch + "/" + entry.batch_id);
      for (const [, , , , starts, ends] of ranges) ends.forEach((end, at) => { sums.offsets += end - starts[at]; });
      add("rows_filtered", entry.rows_filtered);
      add("rows_quarantined", entry.rows_quarantined);
    }
    return { batches: batches.size, ...sums };
  }

  const show = (cell, state, sentence = "") => {
    cell.dataset.state = state;
    cell.textContent = WORDS[state] + (sentence ? ": " + sentence : "");
  };

  // One check of a chain; what it throws is said in its cell.
  async function check(row, name, verify) {
    const cell = row.querySelector("[data-check=" + name + "]");
    try {
      const [state, sentence] = await verify();
      show(cell, state, sentence);
    } catch (error) {
      show(cell, error instanceof Wrong ? "wrong" : "unproved",
        error instanceof Wrong ? error.message : "this browser cannot verify it (" + error.message + ")");
    }
    return cell.dataset.state;
  }

  async function verifyChain(chain, row, figures, keys, trusted) {
    let head = null;
    const none = ["unproved", chain.reason];
    await check(row, "signature", async () => {
      if (!chain.note) return none;
      head = await opened(chain.note, trusted ? [trusted] : keys);
      need(head.origin.endsWith("/" + chain.pipeline + "/" + chain.sink), "the head is of another pipeline or sink");
      return [trusted ? "right" : "compare", head.size + " entries, " + head.more.filter((line) => line.startsWith("at ")).join("")];
    });
    await check(row, "hashes", async () => {
      for (const [at, text] of chain.texts.entries()) {
        need(hex(await sha256(bytes(text))) === chain.hashes[at], "entry " + (at + 1) + " does not match its hash");
        const entry = JSON.parse(text.slice(0, text.indexOf("\n")));
        need(entry.pipeline === chain.pipeline && entry.sink === chain.sink, "an entry is of another chain");
        need(at === 0 || entry.prev_hash === chain.hashes[at - 1],
          "entry " + (at + 1) + " does not follow the one before it");
      }
      return chain.texts.length ? ["right", chain.texts.length + " entries"] : ["unproved", "no entry in the period"];
    });
    await check(row, "inclusion", async () => {
      if (!head || !chain.texts.length) return chain.note ? ["unproved", "no entry, or no signature"] : none;
      const covered = chain.hashes.slice(0, chain.hashes.length - chain.behind);
      const leaves = await Promise.all(covered.map((hash) => sha256(LEAF, bytes(hash))));
      need(await rootOf(leaves, chain.begin, head.size, chain.path) === head.root, "the entries do not lead to the head");
      if (chain.behind) return ["unproved", chain.behind + " of " + chain.hashes.length + " entries are behind the head"];
      return ["right", "entries " + (chain.begin + 1) + " to " + (chain.begin + leaves.length) + " of " + head.size];
    });
    await check(row, "numbers", async () => {
      const found = figuresOf(chain.texts);
      let unknown = 0;
      for (const cell of figures.querySelectorAll("[data-figure]")) {
        const name = cell.dataset.figure, given = cell.textContent.trim();
        if (given === "unknown") { unknown += 1; continue; }
        need(given.replaceAll(",", "") === String(found[name]),
          name + " is " + found[name] + ", and the page says " + given);
      }
      return ["right", unknown ? unknown + " are not known" : ""];
    });
    return head;
  }

  const data = (async () => {
    const packed = new Blob([plain($("data").textContent.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(packed).text());
  })();
  let heads = [];

  async function verify() {
    const { keys: texts, chains } = await data;
    document.body.dataset.verified = "";
    const given = $("key").value.trim();
    let trusted = null, complaint = "";
    const keys = [];
    for (const text of texts) keys.push(await publicKey(text));
    try { trusted = given ? await publicKey(given) : null; } catch (error) { complaint = error.message; }
    heads = [];
    for (const [at, chain] of chains.entries()) {
      heads.push(await verifyChain(chain, $("chain-" + at), $("figures-" + at), keys, trusted));
    }
    const states = new Set(Array.from(document.querySelectorAll("[data-check]"), (cell) => cell.dataset.state));
    let state = "right", sentence = "Every signature, proof, hash and number is right.";
    if (states.has("wrong")) [state, sentence] = ["wrong", "Something is wrong: this pack is not what was signed."];
    else if (states.has("unproved")) [state, sentence] = ["unproved", "Not everything could be proved."];
    else if (states.has("compare")) {
      [state, sentence] = ["compare",
        "Everything in this file agrees. Enter the public key that you were given: a key in a file proves nothing."];
    }
    if (!chains.length) [state, sentence] = ["unproved", "There is no sink in this pack."];
    if (complaint) [state, sentence] = ["wrong", "The key that you entered: " + complaint + "."];
    $("answer").dataset.state = state;
    $("answer").textContent = sentence;
    document.body.dataset.verified = state;
  }

  // Heads that the reader fetched from the place where they are published.
  async function compare(files) {
    const { keys: texts } = await data, keys = [], said = [];
    for (const text of texts) keys.push(await publicKey(text));
    for (const file of files) {
      try {
        const text = await file.text();
        const notes = text.trimStart().startsWith("{") ? JSON.parse(text).notes : [text];
        for (const note of notes) {
          const other = await opened(note, keys);
          const mine = heads.find((head) => head && head.origin === other.origin);
          if (!mine) continue;
          if (mine.size !== other.size) said.push(other.origin + ": of " + other.size + " entries, not compared");
          else if (mine.root === other.root) said.push(other.origin + ": the same head");
          else said.push(other.origin + ": ANOTHER HEAD of as many entries (a fork)");
        }
      } catch (error) { said.push(file.name + ": " + error.message); }
    }
    $("compared").textContent = said.join("\n") || "No head of this pack is there.";
  }

  const failed = (error) => {
    $("answer").dataset.state = "unproved";
    $("answer").textContent = "Nothing was verified: " + error.message;
    document.body.dataset.verified = "unproved";
  };
  $("key").addEventListener("change", () => verify().catch(failed));
  $("published").addEventListener("change", (event) => compare(event.target.files));
  verify().catch(failed);
})();
