// What several panes use of the page: elements, dialogs, progress, words for numbers.

export const $ = (id) => document.getElementById(id);

/** An element with text or children. Never HTML: names of files are the sandbox's. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function say(element, text, tone = "") {
  element.textContent = text;
  if (tone) element.dataset.tone = tone;
  else delete element.dataset.tone;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let step = 0;
  while (count >= 1024 && step < units.length - 1) {
    count /= 1024;
    step += 1;
  }
  return `${step && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[step]}`;
}

/** A bar with words, for work that takes a while; `total` 0 is not known. */
export class Progress {
  #root;
  #bar = make("progress", { max: 1 });
  #what = make("span");
  #far = make("span");

  constructor(root) {
    this.#root = root;
    root.replaceChildren(this.#what, this.#far, this.#bar);
  }

  begin(what) {
    this.#what.textContent = what;
    this.#bar.setAttribute("aria-label", what);
    this.#root.hidden = false;
    this.at(0, 0);
  }

  at(done, total) {
    if (total) this.#bar.value = done / total;
    else this.#bar.removeAttribute("value");
    this.#far.textContent = total ? `${bytes(done)} of ${bytes(total)}` : bytes(done);
  }

  end() {
    this.#root.hidden = true;
  }
}

/** Whether its user agrees. */
export async function confirmed({ title, text, action }) {
  const dialog = $("confirm-dialog");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-ok").textContent = action;
  return (await answer(dialog)) === "ok";
}

export async function askForToken() {
  const input = $("token-input");
  input.value = "";
  do await answer($("token-dialog"));
  while (!input.value);
  return input.value;
}

function answer(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

/** Hands a file to the browser's downloads. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Reads a response's body piece by piece, and says how far it is. */
export async function collect(response, onProgress) {
  const pieces = [];
  let done = 0;
  for (const reader = response.body.getReader(); ; ) {
    const piece = await reader.read();
    if (piece.done) return new Blob(pieces);
    pieces.push(piece.value);
    onProgress((done += piece.value.length));
  }
}

/** Calls `work` when nothing has asked for it for `quiet` ms. */
export function debounced(work, quiet) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, quiet);
  };
}
