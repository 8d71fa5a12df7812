// The browser of stores: a key, or all entries page by page, through the queries of the server.

import { Table, badge, el, moment } from "./dom.js";

const PAGE = 50;

export class Stores {
  constructor(place, get) {
    this.get = get;
    this.chosen = null;
    this.after = null;
    this.choices = el("div", { class: "choices", role: "group", "aria-label": "Stores" });
    this.about = el("p", { class: "muted", id: "store-about" });
    this.key = el("input", { id: "store-key", autocomplete: "off", spellcheck: "false" });
    this.format = el("select", { id: "store-format" }, ...["as its type", "json", "hex", "base64"].map((name, index) => el("option", { value: index ? name : "" }, name)));
    this.from = el("input", { id: "store-from", placeholder: "ISO text or epoch ms" });
    this.to = el("input", { id: "store-to", placeholder: "ISO text or epoch ms" });
    this.times = [el("div", {}, el("label", { for: "store-from" }, "Windows from"), this.from), el("div", {}, el("label", { for: "store-to" }, "until"), this.to)];
    this.form = el("form", { class: "query", onsubmit: (event) => { event.preventDefault(); this.lookUp(); } },
      el("div", {}, el("label", { for: "store-key" }, "Key"), this.key), el("div", {}, el("label", { for: "store-format" }, "The key is given"), this.format),
      ...this.times, el("button", { type: "submit", class: "primary", id: "store-get" }, "Look up"),
      el("button", { type: "button", id: "store-scan", onclick: () => this.scan(true) }, "List entries"));
    this.message = el("p", { class: "empty", role: "status", id: "store-message" });
    this.more = el("button", { type: "button", id: "store-more", hidden: true, onclick: () => this.scan(false) }, "Next entries");
    const frame = el("div", { class: "result", id: "store-result" });
    this.none = el("p", { class: "empty" }, "This application has no stores.");
    this.all = el("div", {}, this.choices, this.about, this.form, this.message, frame, this.more);
    place.replaceChildren(this.all, this.none);
    const pre = (row, text) => el("pre", {}, text);
    this.table = new Table(frame, "Entries", [
      { title: "Key", of: (row) => JSON.stringify(row.key), draw: pre },
      { title: "Window", of: (row) => (row.window ? `${moment(row.window.start)} – ${moment(row.window.end)}` : ""), },
      { title: "Value", of: (row) => JSON.stringify(row.value, null, 1), kind: "long", draw: pre },
      { title: "Time", of: (row) => (row.timestamp === undefined ? "" : moment(row.timestamp)), kind: "word" },
    ], { empty: "" });
    this.table.show([]);
  }

  async load() {
    const answer = await this.get("stores");
    if (!answer.ok) return;
    this.known = answer.body.stores;
    this.all.hidden = !this.known.length;
    this.none.hidden = this.known.length > 0;
    this.choices.replaceChildren(...this.known.map((store) => el("button", { type: "button", "aria-pressed": "false", "data-store": store.name, onclick: () => this.choose(store.name) }, store.name)));
    if (this.known.length) this.choose(this.known[0].name);
  }

  choose(name) {
    this.chosen = this.known.find((store) => store.name === name) || this.chosen;
    for (const button of this.choices.children) button.setAttribute("aria-pressed", String(button.dataset.store === this.chosen.name));
    const { kind, key, value, queries } = this.chosen;
    this.kind = queries.includes("find_sessions") ? "sessions" : queries.includes("fetch_range") || queries.includes("fetch") ? "windows" : "keys";
    this.about.textContent = `${kind}, keys are ${key}, values are ${value}`;
    for (const part of this.times) part.hidden = this.kind === "keys";
    this.show([], "");
  }

  browse(name) {
    this.choose(name);
    this.key.focus();
    this.key.scrollIntoView({ block: "center" });
    this.scan(true);
  }

  show(rows, message, more = false) {
    this.table.show(rows);
    this.message.textContent = message;
    this.message.hidden = !message;
    this.more.hidden = !more;
  }

  // Of another request that was sent in the meantime, the answer counts.
  async ask(path, parameters) {
    const asked = this.asked = {};
    const answer = await this.get(`stores/${encodeURIComponent(this.chosen.name)}/${path}${parameters.size ? `?${parameters}` : ""}`);
    if (asked !== this.asked) return null;
    if (!answer.ok) {
      this.show([], answer.body?.message || `the server has answered with status ${answer.status}`);
      return null;
    }
    return answer.body;
  }

  async lookUp() {
    const parameters = new URLSearchParams();
    if (this.format.value) parameters.set("key_format", this.format.value);
    if (this.kind !== "keys") {
      if (this.from.value) parameters.set("from", this.from.value);
      if (this.to.value) parameters.set("to", this.to.value);
      parameters.set("limit", PAGE);
    }
    const body = await this.ask(`${this.kind}/${encodeURIComponent(this.key.value)}`, parameters);
    if (!body) return;
    const rows = body.entries ? body.entries.map((entry) => ({ key: body.key, ...entry })) : [body];
    this.show(rows, rows.length ? `${rows.length} ${rows.length === 1 ? "entry" : "entries"}${body.has_more ? ", and more" : ""}, partition ${body.partition}` : "there is no entry for this key");
  }

  async scan(first) {
    const parameters = new URLSearchParams({ limit: PAGE });
    if (!first && this.after) parameters.set("after", this.after);
    if (this.kind === "windows") {
      if (this.from.value) parameters.set("from_time", this.from.value);
      if (this.to.value) parameters.set("to_time", this.to.value);
    }
    const body = await this.ask("range", parameters);
    if (!body) return;
    this.after = body.next;
    this.show(body.entries, body.entries.length ? `${body.entries.length} entries${body.next ? ", and more" : ""}` : "the store has no entries", Boolean(body.next));
  }
}
