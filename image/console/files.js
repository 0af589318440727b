// The session's files: list, download, upload, delete.

import { $, Progress, bytes, collect, confirmed, download, make, say } from "./page.js";

const SHOWN_MAX = 1000;

/** Each component for itself: a slash is a slash, everything else may be in a name. */
const route = (path) => `session/files/${path.split("/").map(encodeURIComponent).join("/")}`;

export class FilesPane {
  #api;
  #progress = new Progress($("files-progress"));
  #refreshing = null;

  constructor(api) {
    this.#api = api;
    $("files-refresh").onclick = () => this.refresh();
    $("files-upload").onclick = () => $("files-input").click();
    $("files-input").onchange = () => {
      this.#upload([...$("files-input").files]);
      $("files-input").value = "";
    };
    this.#takeDrops($("pane-files").querySelector(".scroll"));
  }

  /** One at a time; who asks meanwhile waits for a list that is newer than the question. */
  async refresh() {
    const before = this.#refreshing;
    this.#refreshing = (async () => {
      await before;
      await this.#list();
    })();
    await this.#refreshing;
  }

  async #list() {
    let listed;
    try {
      listed = await this.#api.json("GET", "session/files");
    } catch (error) {
      // Not bound yet: there is nothing to list, and that is no failure.
      listed = { files: [] };
      say($("files-count"), error.code === "session_unbound" || error.code === "not_found" ? "" : error.message,
        error.code === "session_unbound" || error.code === "not_found" ? "" : "bad");
      this.#show(listed.files);
      return;
    }
    this.#show(listed.files.slice(0, SHOWN_MAX));
    const total = listed.files.reduce((sum, file) => sum + file.size, 0);
    const more = listed.truncated || listed.files.length > SHOWN_MAX ? " and more" : "";
    say($("files-count"), listed.files.length ? `${listed.files.length}${more}, ${bytes(total)}` : "");
  }

  #show(files) {
    const focused = document.activeElement?.dataset?.key;
    $("files-list").replaceChildren(...files.map((file) => this.#row(file)));
    $("files-empty").hidden = files.length > 0;
    // A list that is made anew must not throw a keyboard's user out of it.
    if (focused) $("files-list").querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #row(file) {
    const get = make("button", { className: "link mono", textContent: file.path, title: "Download" });
    get.dataset.key = `get ${file.path}`;
    get.onclick = () => this.#download(file);
    const remove = make("button", { className: "quiet", textContent: "Delete" });
    remove.dataset.key = `remove ${file.path}`;
    remove.setAttribute("aria-label", `Delete ${file.path}`);
    remove.onclick = () => this.#delete(file);
    return make("tr", {},
      make("td", {}, get),
      make("td", { className: "size", textContent: bytes(file.size) }),
      make("td", { className: "actions" }, remove));
  }

  async #download(file) {
    await this.#work(`Downloading ${file.path}`, async () => {
      const response = await this.#api.call("GET", route(file.path));
      const blob = await collect(response, (done) => this.#progress.at(done, file.size));
      download(blob, file.path.split("/").pop());
    });
  }

  async #delete(file) {
    if (!await confirmed({ title: `Delete ${file.path}?`, text: "It cannot be brought back, but from a checkpoint.", action: "Delete" })) return;
    await this.#work(`Deleting ${file.path}`, () => this.#api.call("DELETE", route(file.path)));
    await this.refresh();
  }

  async #upload(files) {
    for (const file of files) {
      await this.#work(`Uploading ${file.name}`, () =>
        this.#api.send("PUT", route(file.name), file, {
          headers: { "Content-Type": "application/octet-stream" },
          onProgress: (done, total) => this.#progress.at(done, total),
        }));
    }
    await this.refresh();
  }

  async #work(what, work) {
    this.#progress.begin(what);
    try {
      await work();
    } catch (error) {
      say($("files-count"), error.message, "bad");
    } finally {
      this.#progress.end();
    }
  }

  #takeDrops(area) {
    const over = (on) => (event) => {
      event.preventDefault();
      area.classList.toggle("drop", on);
    };
    area.ondragover = over(true);
    area.ondragleave = over(false);
    area.ondrop = (event) => {
      over(false)(event);
      this.#upload([...event.dataTransfer.files]);
    };
  }
}
