// The terminal's pane: xterm.js, and a connection that comes back (docs/terminal.md).
//
// What it must never do is to believe. Whenever it comes back it asks for a ticket first, and says
// which incarnation it means: on another one it starts anew, and says so.

import "./nonce.js";
import { FitAddon } from "./vendor/addon-fit.mjs";
import { Terminal } from "./vendor/xterm.mjs";
import { $ } from "./page.js";

const CLOSE = { DONE: 1000, TAKEN_OVER: 4409, INCARNATION_ENDED: 4412 };
/** Bytes drawn after which the daemon is told; it stops the shell when we are 192 KiB behind. */
const ACK_BYTES = 32 * 1024;
const RETRY_MS = [300, 600, 1200, 2500, 5000];

const THEME = {
  background: "#0a1113", foreground: "#dce8e8", cursor: "#35c2a5", cursorAccent: "#04201a",
  selectionBackground: "#2b5a58", black: "#1c2a2e", red: "#ff7d76", green: "#54d69a",
  yellow: "#f0b35a", blue: "#6fb3ff", magenta: "#d69bf7", cyan: "#4fd3d3", white: "#dce8e8",
  brightBlack: "#6c8588", brightRed: "#ff9d96", brightGreen: "#7be7b3", brightYellow: "#ffd08a",
  brightBlue: "#98c9ff", brightMagenta: "#e6bcff", brightCyan: "#83e6e6", brightWhite: "#ffffff",
};

export class TerminalPane {
  #api;
  #notify;
  #onActivity;
  #term;
  #fit = new FitAddon();
  #socket = null;
  /** Which attempt is the newest: what an older one still says does not count. */
  #attempt = 0;
  #failures = 0;
  #retry = 0;
  /** Of the next byte; null when the screen shows nothing of the terminal yet. */
  #offset = null;
  #drawn = 0;
  #acknowledged = 0;
  #ended = true;
  #isRenewing = false;

  constructor(api, { notify, onActivity }) {
    this.#api = api;
    this.#notify = notify;
    this.#onActivity = onActivity;
    this.#term = new Terminal({
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: 14,
      scrollback: 5000,
      theme: THEME,
      screenReaderMode: localStorage.getItem("reader") === "true",
    });
    this.#term.loadAddon(this.#fit);
    this.#term.open($("terminal"));
    this.#term.attachCustomKeyEventHandler((event) => this.#isForTheShell(event));
    this.#term.onData((text) => this.#type(new TextEncoder().encode(text)));
    this.#term.onBinary((text) => this.#type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    this.#term.onResize(({ cols, rows }) => this.#control({ type: "resize", cols, rows }));
    new ResizeObserver(() => requestAnimationFrame(() => this.#refit())).observe($("terminal"));
    $("terminal-retry").onclick = () => this.#connectAndFocus();
    $("terminal-take").onclick = () => this.#connectAndFocus({ takeover: true });
    $("terminal-new").onclick = () => this.#startAnew();
    this.#setUpReader();
  }

  focus() {
    this.#term.focus();
  }

  /** What a test, or a reader of another kind, wants to see. */
  get text() {
    const buffer = this.#term.buffer.active;
    return Array.from({ length: buffer.length }, (_, row) =>
      buffer.getLine(row).translateToString(true)).join("\n");
  }

  get size() {
    return { cols: this.#term.cols, rows: this.#term.rows };
  }

  /** Another session: nothing of this one's terminal is meant any more. */
  restart() {
    this.#wipe();
    this.connect();
  }

  /** Says why it does not connect by itself. */
  wait(why) {
    this.#status("off", why);
    this.#offer("terminal-retry");
  }

  /** Attaches; comes back to the terminal it knows if that is still there. */
  async connect({ takeover = false } = {}) {
    const attempt = ++this.#attempt;
    this.#api.choose();
    clearTimeout(this.#retry);
    this.#socket?.close();
    this.#offer(null);
    this.#status("wait", "connecting");
    let ticket;
    try {
      ticket = await this.#ticket();
    } catch (error) {
      if (attempt === this.#attempt) this.#refused(error);
      return;
    }
    if (attempt !== this.#attempt) return;
    const memory = this.#memory;
    const isOurs = memory.terminal !== undefined && memory.terminal === ticket.terminal;
    if (memory.terminal !== undefined && !isOurs) {
      this.#remark("The shell that was here has ended.");
      this.#memory = { incarnation: ticket.incarnation };
      this.#offset = null;
    }
    if (ticket.attached && !isOurs && !takeover) {
      this.#status("off", "in use by another client");
      this.#offer("terminal-take");
      return;
    }
    this.#open(attempt, ticket, { isOurs, takeover });
  }

  #connectAndFocus(how) {
    // The button that was pressed is about to vanish, and must not take the focus with it.
    this.#term.focus();
    this.connect(how);
  }

  async #ticket() {
    const ask = (expected) =>
      this.#api.json("POST", "session/terminal/ticket", { expected });
    try {
      return await ask(this.#memory.incarnation);
    } catch (error) {
      if (error.code !== "incarnation_mismatch") throw error;
      this.#incarnationEnded();
      return ask();
    }
  }

  #open(attempt, ticket, { isOurs, takeover }) {
    this.#refit();
    const query = new URLSearchParams({ ticket: ticket.ticket, ack: 1, ...this.size });
    if (isOurs) {
      query.set("terminal", ticket.terminal);
      if (this.#offset === null) this.#term.reset();
      else query.set("offset", this.#offset);
    }
    if (isOurs || takeover) query.set("takeover", 1);
    const url = this.#api.url(`session/terminal?${query}`);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    let isReady = false;
    this.#socket = socket;
    this.#status("wait", "waiting for a shell");
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      if (typeof data !== "string") return this.#draw(new Uint8Array(data), socket);
      const frame = JSON.parse(data);
      if (frame.type === "ready") {
        isReady = true;
        this.#ready(frame);
      } else if (frame.type === "exit") {
        this.#exited(frame);
      } else if (frame.type === "error" && frame.error !== "invalid_request") {
        this.#remark(frame.message);
      }
    };
    socket.onclose = ({ code }) => {
      if (attempt !== this.#attempt || socket !== this.#socket) return;
      this.#socket = null;
      if (isReady) this.#closed(code);
      else this.#diagnose(attempt);
    };
  }

  #ready({ incarnation, terminal, offset, resumed }) {
    this.#failures = 0;
    this.#ended = this.#isRenewing = false;
    this.#memory = { incarnation, terminal };
    this.#api.note(incarnation);
    this.#offset = this.#drawn = this.#acknowledged = offset;
    this.#status("on", resumed ? "connected again" : "connected");
    this.#control({ type: "resize", ...this.size });
    this.#onActivity();
  }

  #draw(data, socket) {
    this.#offset += data.length;
    this.#term.write(data, () => {
      if (socket !== this.#socket) return;
      this.#drawn += data.length;
      if (this.#drawn - this.#acknowledged >= ACK_BYTES) {
        this.#acknowledged = this.#drawn;
        this.#control({ type: "ack", offset: this.#drawn });
      }
    });
    this.#onActivity();
  }

  #exited({ code, signal, outcome }) {
    this.#ended = true;
    this.#memory = { incarnation: this.#memory.incarnation };
    if (this.#isRenewing) return;
    const how = outcome.kind === "timed_out" ? "reached its time limit"
      : signal ? `was ended by ${signal}` : `ended with ${code}`;
    this.#remark(`The shell ${how}. Press Enter for a new one.`);
  }

  #closed(code) {
    if (code === CLOSE.DONE && this.#ended) {
      this.#offset = null;
      if (this.#isRenewing) {
        this.#term.reset();
        this.connect();
        return;
      }
      this.#status("off", "ended");
      this.#offer("terminal-retry");
    } else if (code === CLOSE.TAKEN_OVER) {
      this.#status("off", "taken over by another client");
      this.#offer("terminal-take");
    } else if (code === CLOSE.INCARNATION_ENDED) {
      this.#wipe();
      this.#notify("The workspace under the terminal was replaced. This shell is a new one.");
      this.connect();
    } else {
      this.#later();
    }
  }

  /** A browser does not say why a WebSocket was refused; a boot asks the same of the session. */
  async #diagnose(attempt) {
    try {
      await this.#api.call("POST", "session/boot", { expected: this.#memory.incarnation });
    } catch (error) {
      if (attempt === this.#attempt) this.#refused(error);
      return;
    }
    if (attempt === this.#attempt) this.#later();
  }

  #refused(error) {
    if (error.code === "unreachable" || error.status >= 500 || error.code === "session_busy"
        || error.code === "incarnation_mismatch") {
      this.#later(error.code === "unreachable" ? "" : error.message);
      return;
    }
    this.#status("off", error.message);
    this.#offer("terminal-retry");
    if (error.reason === "other_session") {
      this.#notify("This sandbox belongs to another session: enter its name above.", "bad");
    } else if (error.body.recycle) {
      this.#notify("The workspace is not to be trusted: restore a checkpoint, or recycle this sandbox.", "bad");
    }
  }

  #later(why = "") {
    const wait = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)];
    this.#status("wait", why || "connection lost; trying again");
    if (this.#failures > 2) this.#offer("terminal-retry");
    this.#retry = setTimeout(() => this.connect(), wait);
  }

  #incarnationEnded() {
    this.#wipe();
    this.#notify("This is a new sandbox: the disk of the old one is gone, and its files with it. "
      + "The shell below is freshly provisioned; restore a checkpoint to have your files back.");
  }

  #startAnew() {
    this.#term.focus();
    if (this.#socket === null) {
      this.connect();
      return;
    }
    this.#isRenewing = true;
    this.#control({ type: "hangup" });
  }

  // What this tab remembers over a reload

  get #memory() {
    return JSON.parse(sessionStorage.getItem(`terminal:${this.#api.session}`) || "{}");
  }

  set #memory(memory) {
    sessionStorage.setItem(`terminal:${this.#api.session}`, JSON.stringify(memory));
  }

  #wipe() {
    this.#memory = {};
    this.#offset = null;
    this.#term.reset();
  }

  // Keys, size, words

  #type(data) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(data);
    else if (this.#ended && data.includes(13)) this.connect();
  }

  #control(frame) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  #isForTheShell(event) {
    if (event.key === "F6") return false;
    if (event.ctrlKey && event.shiftKey && event.code === "KeyC") {
      if (event.type === "keydown") navigator.clipboard?.writeText(this.#term.getSelection());
      event.preventDefault();
      return false;
    }
    return true;
  }

  #refit() {
    if ($("terminal").clientWidth > 40 && $("terminal").clientHeight > 40) this.#fit.fit();
  }

  #remark(text) {
    this.#term.write(`\r\n\x1b[0m\x1b[33m— ${text.replace(/[^ -~—]/g, "")}\x1b[0m\r\n`);
  }

  #status(state, text) {
    $("terminal-status").dataset.state = state;
    $("terminal-status").textContent = text;
  }

  /** Which button helps now, if one does. */
  #offer(id) {
    for (const each of ["terminal-retry", "terminal-take"]) $(each).hidden = each !== id;
  }

  #setUpReader() {
    const button = $("terminal-reader");
    const show = () => button.setAttribute("aria-pressed", String(this.#term.options.screenReaderMode));
    button.onclick = () => {
      this.#term.options.screenReaderMode = !this.#term.options.screenReaderMode;
      localStorage.setItem("reader", String(this.#term.options.screenReaderMode));
      show();
    };
    show();
  }
}
