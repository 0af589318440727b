// Saving the session as an archive, and restoring one.

import { $, Progress, bytes, collect, confirmed, download, say } from "./page.js";

export class CheckpointPane {
  #api;
  #onRestored;
  #progress = new Progress($("checkpoint-progress"));

  constructor(api, { onRestored }) {
    this.#api = api;
    this.#onRestored = onRestored;
    $("checkpoint-save").onclick = () => this.#busy(() => this.#save());
    $("checkpoint-restore").onclick = () => $("checkpoint-input").click();
    $("checkpoint-input").onchange = () => {
      const [file] = $("checkpoint-input").files;
      $("checkpoint-input").value = "";
      if (file) this.#busy(() => this.#restore(file));
    };
  }

  async #save() {
    this.#progress.begin("Saving");
    const response = await this.#api.call("GET", "session/checkpoint");
    const entries = response.headers.get("X-Checkpoint-Entries");
    const blob = await collect(response, (done) => this.#progress.at(done, 0));
    const moment = new Date().toISOString().replace(/[:.]/g, "-").slice(0, 19);
    download(blob, `${this.#api.session.replace(/[^A-Za-z0-9._-]/g, "_")}-${moment}.tar.gz`);
    say($("checkpoint-status"), `Saved ${entries} entries, ${bytes(blob.size)}.`, "good");
  }

  async #restore(file) {
    const agreed = await confirmed({
      title: "Replace all files?",
      text: `Everything in /mnt/data is replaced by ${file.name}. If the archive turns out to be damaged, nothing is left.`,
      action: "Restore",
    });
    if (!agreed) return;
    this.#progress.begin(`Restoring ${file.name}`);
    const restored = await this.#api.send("POST", "session/restore", file, {
      headers: { "Content-Type": "application/gzip" },
      onProgress: (done, total) => this.#progress.at(done, total),
    });
    say($("checkpoint-status"), `Restored ${restored.entries} entries, ${bytes(restored.bytes)}.`, "good");
  }

  async #busy(work) {
    const buttons = [$("checkpoint-save"), $("checkpoint-restore")];
    for (const button of buttons) button.disabled = true;
    try {
      await work();
    } catch (error) {
      // A cut stream is the runner's way to say that a save failed midway.
      const text = error.code ? error.message : "The archive did not come to its end. Try again.";
      say($("checkpoint-status"), text, "bad");
    } finally {
      this.#progress.end();
      for (const button of buttons) button.disabled = false;
      this.#onRestored();
    }
  }
}
