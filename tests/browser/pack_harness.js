// Opens edited packs in frames, enters a key in each, and gives what each shows: arguments are the page, edits, the key.
const [page, edits, key, done] = arguments;
const frames = Array.from({ length: 4 }, () => {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: 1280px; height: 900px; border: 0";
  return frame;
});
document.body.replaceChildren(...frames);
const pause = () => new Promise((resolve) => setTimeout(resolve, 1));
// Whether the document is the script's own: nothing else has this list.
const answers = (inside) => Boolean(inside?.documentElement?.querySelector("#said"));
async function settled(frame) {
  for (let turn = 0; turn < 1000; turn += 1) {
    const state = frame.contentDocument?.documentElement?.dataset.verified;
    if (state) return state;
    await pause();
  }
  return "nothing";
}
async function shown(frame, [begin, end, text]) {
  const before = frame.contentDocument;
  frame.srcdoc = page.slice(0, begin) + text + page.slice(end);
  // The script stops the reading of its file, so a page that it runs in is never loaded.
  for (let turn = 0; turn < 1000; turn += 1) {
    const now = frame.contentDocument;
    if (now !== before && (answers(now) || now.readyState === "complete")) break;
    await pause();
  }
  const inside = frame.contentDocument;
  // The script makes an answer at once; without one it did not run.
  if (!answers(inside)) return ["not run", inside?.body?.innerText ?? "", true, {}];
  await settled(frame);
  const box = inside.querySelector("#key");
  if (box && !box.disabled) {
    inside.documentElement.dataset.verified = "";
    box.value = key;
    box.dispatchEvent(new frame.contentWindow.Event("change"));
    await settled(frame);
  }
  const texts = (selector) => [...inside.querySelectorAll(selector)].map((one) => {
    const text = one.innerText;
    one.remove();
    return text;
  });
  const answer = inside.querySelector("#answer"), state = answer.dataset.state, whole = inside.documentElement;
  const seen = frame.contentWindow.getComputedStyle(answer).display === "block";
  const alone = inside.childNodes.length === 1 && whole.childElementCount === 2 && whole.innerText.startsWith("Auditor's pack");
  const checks = [...inside.querySelectorAll("#checks td, #numbers tr > td:last-child")].map((cell) => cell.dataset.state);
  const numbers = [...inside.querySelectorAll("[data-figure]")].map((cell) => cell.textContent);
  // What the file says itself is no fact: it is shown as not checked, in its own place.
  texts("#said");
  const rows = texts("#checks tr, #numbers tr"), unknown = texts("#named li"), said = texts("#answer");
  return [state, whole.innerText, seen && alone, { checks, numbers, rows, unknown, said: said[0] }];
}
(async () => {
  const found = new Array(edits.length);
  let next = 0;
  await Promise.all(frames.map(async (frame) => {
    while (next < edits.length) {
      const at = next;
      next += 1;
      try { found[at] = await shown(frame, edits[at]); } catch (error) { found[at] = ["error", String(error), false, {}]; }
    }
  }));
  return found;
})().then(done, (error) => done(String(error)));
