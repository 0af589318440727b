// The header's facts, from GET /health.

import { $, say } from "./page.js";

const INTERVAL_MS = 3000;
const TONES = { ready: "good", dirty: "bad", terminated: "bad", restoring: "warn", provisioning: "warn" };

export class Status {
  #api;
  #timer = 0;

  constructor(api) {
    this.#api = api;
    api.addEventListener("incarnation", ({ detail }) => this.#name(detail.incarnation));
    $("fact-incarnation").onclick = () => navigator.clipboard?.writeText(api.incarnation ?? "");
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  /** What /health says; null when it cannot be asked. */
  async refresh() {
    clearTimeout(this.#timer);
    let report = null;
    try {
      report = await this.#api.json("GET", "health");
      this.#show(report);
    } catch {
      say($("fact-health"), "unreachable", "bad");
    }
    clearTimeout(this.#timer);
    // A page that nobody sees asks nothing.
    if (!document.hidden) this.#timer = setTimeout(() => this.refresh(), INTERVAL_MS);
    return report;
  }

  #show({ status, checks, limits, session }) {
    say($("fact-state"), session.dirty ? `dirty: ${session.dirty}` : session.state,
      session.dirty ? "bad" : TONES[session.state]);
    const failed = checks.filter((check) => !check.ok).map((check) => check.name);
    say($("fact-health"), status === "healthy" ? "healthy" : failed.join(", ") || status,
      status === "healthy" ? "good" : "warn");
    const held = Object.values(limits).every((each) => each === "enforced");
    say($("fact-limits"), held ? "enforced" : "advisory", held ? "good" : "warn");
    $("fact-limits").title = Object.entries(limits).map(([name, how]) => `${name}: ${how}`).join("\n");
    this.#name(session.incarnation);
  }

  #name(incarnation) {
    $("fact-incarnation").textContent = incarnation ? `${incarnation.slice(0, 12)}…` : "none yet";
    $("fact-incarnation").title = incarnation ? `${incarnation}: copy it` : "";
  }
}
