// Why there is, or is not, an output: a key is followed in the group for a while, and its story shown as a graph and as text.

import { drawing, el, setText } from "./dom.js";

const MAX_SECONDS = 60, MAX_RECORDS = 1000, MORE_MS = 20000;

export class Why {
  constructor(place, get) {
    this.get = get;
    this.leave = null;
    this.key = el("input", { id: "why-key", autocomplete: "off", spellcheck: "false", required: true });
    this.format = el("select", { id: "why-format" }, ...["as its type", "json", "hex", "base64"].map((name, index) => el("option", { value: index ? name : "" }, name)));
    this.topic = el("select", { id: "why-topic" }, el("option", { value: "" }, "all outputs"));
    this.seconds = el("input", { id: "why-seconds", type: "number", min: 1, max: MAX_SECONDS, step: "any", value: 10, required: true });
    this.limit = el("input", { id: "why-limit", type: "number", min: 1, max: MAX_RECORDS, value: 100, required: true });
    this.button = el("button", { type: "submit", class: "primary", id: "why-ask" }, "Follow");
    this.stop = el("button", { type: "button", id: "why-stop", hidden: true, onclick: () => this.end() }, "Stop");
    this.message = el("p", { class: "empty", role: "status", id: "why-message", hidden: true });
    this.picture = el("div", { class: "scroll", id: "why-picture", role: "region", "aria-label": "The story as a graph", tabindex: 0, hidden: true });
    this.story = el("pre", { class: "story", id: "why-story", role: "region", "aria-label": "The story of the key", tabindex: 0, hidden: true });
    place.replaceChildren(
      el("form", { class: "query", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
        el("div", {}, el("label", { for: "why-key" }, "Key"), this.key), el("div", {}, el("label", { for: "why-format" }, "The key is given"), this.format),
        el("div", {}, el("label", { for: "why-topic" }, "Output topic"), this.topic), el("div", { class: "few" }, el("label", { for: "why-seconds" }, "Seconds"), this.seconds),
        el("div", { class: "few" }, el("label", { for: "why-limit" }, "or records"), this.limit), this.button, this.stop),
      this.message, this.picture, this.story);
  }

  // Topics that sinks write, from the graph of the topology.
  know(graph) {
    const { boxes, edges } = graph.all;
    const topics = edges.filter(([start]) => boxes[start].kind === "sink").map(([, end]) => boxes[end].name);
    const chosen = this.topic.value;
    this.topic.replaceChildren(el("option", { value: "" }, "all outputs"), ...[...new Set(topics)].sort().map((name) => el("option", { value: name }, name)));
    this.topic.value = topics.includes(chosen) ? chosen : "";
  }

  async ask() {
    if (this.leave) return;
    const seconds = Number(this.seconds.value);
    const body = { key: this.key.value, seconds, limit: Number(this.limit.value) };
    if (this.format.value) body.key_format = this.format.value;
    if (this.topic.value) body.topic = this.topic.value;
    this.leave = new AbortController();
    this.stop.hidden = this.stop.disabled = false;
    this.button.disabled = true;
    this.show(`The key is followed for ${seconds} s, or until so many records of it came.`, "");
    try {
      const answer = await this.get("why", { body, signal: this.leave.signal, timeoutMs: seconds * 1000 + MORE_MS });
      if (answer.ok) this.show("", answer.body.text, answer.body.svg);
      else this.show(answer.body?.message || `the server has answered with status ${answer.status}`, "");
    } catch (error) {
      this.show(error.name === "AbortError" ? "Stopped." : `The application does not answer (${error.name}).`, "");
    }
    this.leave = null;
    this.stop.hidden = true;
    this.button.disabled = false;
  }

  // What was seen until now is the answer to the question; without an answer to this, the question is given up.
  async end() {
    this.stop.disabled = true;
    const answer = await this.get("why", { method: "DELETE" }).catch(() => null);
    if (!answer?.body?.ended) this.leave?.abort();
  }

  show(message, story, picture) {
    setText(this.message, message);
    this.message.hidden = !message;
    setText(this.story, story);
    this.story.hidden = !story;
    this.picture.hidden = !picture;
    this.picture.replaceChildren(...(picture ? [drawing(picture)] : []));
  }
}
