// The run box: code in, live output out (docs/streaming.md).

import { $, bytes, make, say } from "./page.js";

/** What is shown of one run; the rest is counted. */
const SHOWN_MAX = 512 * 1024;
const HELLO = { python: "print('hello from', __import__('os').getcwd())\n" };

export class RunPane {
  #api;
  #onDone;
  #abort = null;
  #execution = null;
  #shown = 0;
  #runtimes = [];

  constructor(api, { onDone }) {
    this.#api = api;
    this.#onDone = onDone;
    $("run-form").onsubmit = (event) => {
      event.preventDefault();
      this.#run();
    };
    $("run-stop").onclick = () => this.#stop();
    $("run-form").onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.#run();
      }
    };
    $("run-code").oninput = () => sessionStorage.setItem("code", $("run-code").value);
  }

  async start() {
    $("run-language").onchange = () => say($("run-status"), this.#limits());
    const runtimes = this.#runtimes = await this.#api.json("GET", "runtimes");
    $("run-language").replaceChildren(...runtimes.map(({ language, version }) =>
      make("option", { value: `${language} ${version}`, textContent: `${language} ${version}` })));
    $("run-code").value = sessionStorage.getItem("code")
      ?? HELLO[runtimes[0]?.language] ?? "";
    say($("run-status"), this.#limits());
  }

  /** What the chosen language may use at most. */
  #limits() {
    const limits = this.#runtimes[$("run-language").selectedIndex]?.limits;
    if (!limits) return "";
    const { run_timeout: time, run_memory_limit: memory, pids } = limits;
    return `up to ${time / 1000} s, ${bytes(memory)}, ${pids} processes`;
  }

  async #run() {
    if (this.#abort) return;
    const [language, version] = $("run-language").value.split(" ");
    this.#begin();
    try {
      const response = await this.#api.call("POST", "execute", {
        signal: this.#abort.signal,
        headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
        body: JSON.stringify({
          language, version, stdin: $("run-stdin").value,
          files: [{ name: language === "java" ? "Main.java" : "main", content: $("run-code").value }],
        }),
      });
      for await (const { event, data } of events(response)) this.#take(event, data);
      if ($("run-status").dataset.running) say($("run-status"), "cut off: how it ended is not known", "bad");
    } catch (error) {
      say($("run-status"), error.name === "AbortError" ? "stopped" : error.message, "bad");
    } finally {
      this.#abort = this.#execution = null;
      delete $("run-status").dataset.running;
      $("run-stop").disabled = true;
      $("run-start").disabled = false;
      this.#onDone();
    }
  }

  #begin() {
    this.#abort = new AbortController();
    this.#shown = 0;
    $("run-output").replaceChildren();
    $("run-stop").disabled = false;
    $("run-start").disabled = true;
    $("run-status").dataset.running = "true";
    say($("run-status"), "starting");
  }

  #take(event, data) {
    if (event === "started") {
      this.#execution = data.id ?? this.#execution;
      say($("run-status"), data.stage === "compile" ? "compiling" : "running");
    } else if (event === "stdout" || event === "stderr") {
      this.#print(event, data.data);
    } else if (event === "result") {
      this.#finish(data);
    } else if (event === "error") {
      delete $("run-status").dataset.running;
      say($("run-status"), data.message, "bad");
    }
  }

  #print(stream, text) {
    const output = $("run-output");
    const isAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
    const room = SHOWN_MAX - this.#shown;
    if (room > 0) output.append(make("span", { className: stream, textContent: text.slice(0, room) }));
    if (room > 0 && text.length >= room) output.append(make("span", { textContent: "\n[the rest is not shown]" }));
    this.#shown += text.length;
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }

  #finish({ compile, run, files }) {
    delete $("run-status").dataset.running;
    const stage = compile && compile.outcome.kind !== "exited" ? compile : run;
    const ok = stage.outcome.fault === "none";
    const how = stage.outcome.kind === "exited" ? `exit ${stage.code}`
      : `${stage.outcome.kind.replaceAll("_", " ")}${stage.signal ? ` (${stage.signal})` : ""}`;
    const made = files.length ? `, ${files.length} file${files.length > 1 ? "s" : ""}` : "";
    say($("run-status"), `${how} in ${stage.wall_time} ms, ${Math.round(stage.memory / 1048576)} MiB${made}`,
      ok ? "good" : "bad");
  }

  /** Its jail is ended and the result says `cancelled`; before it has a name, it is just left. */
  async #stop() {
    if (this.#execution === null) {
      this.#abort?.abort();
      return;
    }
    try {
      await this.#api.call("DELETE", `execute/${this.#execution}`);
    } catch {
      this.#abort?.abort();
    }
  }
}

/** The events of a text/event-stream (HTML standard, 9.2.6), as this daemon writes them. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += value;
    const blocks = pending.split("\n\n");
    pending = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").filter((line) => !line.startsWith(":"))
        .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.event) yield { event: fields.event, data: JSON.parse(fields.data) };
    }
  }
}
