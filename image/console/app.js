// The page: makes the panes, tells them of each other, and lets a keyboard get to all of them.

import { Api } from "./api.js";
import { CheckpointPane } from "./checkpoint.js";
import { FilesPane } from "./files.js";
import { $, askForToken, debounced } from "./page.js";
import { RunPane } from "./run.js";
import { Status } from "./status.js";
import { TerminalPane } from "./terminal.js";

const PANES = ["terminal", "run", "files", "checkpoint"];

const api = new Api(askForToken);
const status = new Status(api);
const files = new FilesPane(api);
/** What was typed or run may have changed the files. */
const touched = debounced(() => {
  files.refresh();
  status.refresh();
}, 700);
const terminal = new TerminalPane(api, { notify, onActivity: touched });
const run = new RunPane(api, { onDone: touched });
new CheckpointPane(api, { onRestored: touched });

function notify(text, tone = "") {
  $("banner-text").textContent = text;
  $("banner").dataset.tone = tone;
  $("banner").hidden = false;
}
$("banner-close").onclick = () => ($("banner").hidden = true);

// Panes

function show(name) {
  for (const each of PANES) {
    $(`pane-${each}`).toggleAttribute("data-active", each === name);
    const tab = document.querySelector(`[data-pane="${each}"]`);
    if (each === name) tab.setAttribute("aria-current", "true");
    else tab.removeAttribute("aria-current");
  }
}

function enter(name) {
  show(name);
  const inside = { terminal: () => terminal.focus(), run: () => $("run-code").focus() };
  (inside[name] ?? (() => $(`pane-${name}`).focus()))();
}

for (const tab of document.querySelectorAll("[data-pane]")) {
  tab.onclick = () => enter(tab.dataset.pane);
}

addEventListener("keydown", (event) => {
  if (event.key !== "F6" || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  const now = PANES.findIndex((name) => $(`pane-${name}`).contains(document.activeElement));
  const step = event.shiftKey ? -1 : 1;
  enter(PANES[(now + step + PANES.length) % PANES.length]);
});

// Session

$("session-name").value = api.session;
$("session-form").onsubmit = (event) => {
  event.preventDefault();
  if (!$("session-form").reportValidity() || $("session-name").value === api.session) return;
  api.session = $("session-name").value;
  $("banner").hidden = true;
  terminal.restart();
  touched();
  terminal.focus();
};

// Tests read the terminal's text here: a canvas of glyphs says it to nobody.
globalThis.sandboxConsole = { terminal };

async function start() {
  terminal.focus();
  const report = await status.refresh();
  // The first session that asks has this sandbox for its whole life: no page takes it by being
  // opened. A tab that has been here comes back by itself.
  if (report?.session.state === "unbound" && !api.isChosen) {
    terminal.wait("a first use gives this sandbox to the session above");
  } else {
    terminal.connect();
  }
  files.refresh();
  await run.start();
}

start().catch((error) => notify(error.message, "bad"));
