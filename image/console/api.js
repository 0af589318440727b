// Talking to the runner this page came from: session, token, errors. Knows nothing of the page.

/** Routes lie beside the page, whatever prefix a proxy has put before both. */
const BASE = new URL(".", location.href);

/** A refusal in the runner's one error shape; `status` is 0 when there was no answer. */
export class ApiError extends Error {
  constructor(status, body = {}) {
    super(body.message || (status ? `the runner answered ${status}` : "the runner cannot be reached"));
    this.status = status;
    this.code = body.error || (status ? "unknown" : "unreachable");
    this.reason = body.reason || null;
    this.body = body;
  }
}

export class Api extends EventTarget {
  #askForToken;
  #asking = null;

  /** `askForToken()` resolves to the token its user gives. */
  constructor(askForToken) {
    super();
    this.#askForToken = askForToken;
    this.incarnation = null;
  }

  get session() {
    return sessionStorage.getItem("session") || localStorage.getItem("session") || "me";
  }

  set session(name) {
    sessionStorage.setItem("session", name);
    localStorage.setItem("session", name);
    this.incarnation = null;
  }

  /** Whether this tab has worked in this session before. */
  get isChosen() {
    return sessionStorage.getItem("session") !== null;
  }

  choose() {
    sessionStorage.setItem("session", this.session);
  }

  url(path) {
    return new URL(path, BASE);
  }

  headers(more = {}) {
    const token = sessionStorage.getItem("token");
    return {
      "X-Runtime-Session-Id": this.session,
      ...(token ? { Authorization: `Bearer ${token}` } : {}),
      ...more,
    };
  }

  /** Asks once more with a new token, however many requests were refused at once. */
  async renewToken() {
    this.#asking ??= this.#askForToken().finally(() => (this.#asking = null));
    sessionStorage.setItem("token", await this.#asking);
  }

  /** The response of a request that was not refused. Throws ApiError. */
  async call(method, path, { body, headers, expected, signal } = {}) {
    const more = { ...headers, ...(expected ? { "X-Expected-Incarnation": expected } : {}) };
    for (;;) {
      let response;
      try {
        response = await fetch(this.url(path), {
          method, body, signal, cache: "no-store", headers: this.headers(more),
        });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ApiError(0);
      }
      this.note(response.headers.get("X-Incarnation-Id"));
      if (response.status === 401) {
        await this.renewToken();
        continue;
      }
      // 503 is how /health says that it is not ready: an answer, not a refusal.
      if (response.ok || response.status === 503) return response;
      throw new ApiError(response.status, await response.json().catch(() => ({})));
    }
  }

  async json(method, path, options) {
    return (await this.call(method, path, options)).json();
  }

  /** A body whose sending can be watched: fetch cannot say how far it is. */
  async send(method, path, body, { headers, onProgress, signal } = {}) {
    for (;;) {
      const request = new XMLHttpRequest();
      const done = new Promise((resolve, reject) => {
        request.onload = resolve;
        request.onerror = () => reject(new ApiError(0));
        request.onabort = () => reject(new DOMException("aborted", "AbortError"));
      });
      request.open(method, this.url(path));
      for (const [name, value] of Object.entries(this.headers(headers))) request.setRequestHeader(name, value);
      request.upload.onprogress = (event) => onProgress?.(event.loaded, event.total);
      signal?.addEventListener("abort", () => request.abort(), { once: true });
      request.send(body);
      await done;
      this.note(request.getResponseHeader("X-Incarnation-Id"));
      if (request.status === 401) {
        await this.renewToken();
        continue;
      }
      const answer = parse(request.responseText);
      if (request.status < 200 || request.status > 299) throw new ApiError(request.status, answer);
      return answer;
    }
  }

  /** Every response names the incarnation; when it is another one, whoever listens is told. */
  note(incarnation) {
    if (!incarnation || incarnation === this.incarnation) return;
    const before = this.incarnation;
    this.incarnation = incarnation;
    this.dispatchEvent(new CustomEvent("incarnation", { detail: { before, incarnation } }));
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
