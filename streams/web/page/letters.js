// Dead letters by reason, node and line, read when asked for, with the commands that show and re-drive them.

import { badge, count, el, moment, setText } from "./dom.js";

const TIMEOUT_MS = 15000;

export class Letters {
  constructor(place, get) {
    this.get = get;
    this.button = el("button", { type: "button", id: "letters-read", onclick: () => this.read() }, "Read dead letters");
    this.message = el("p", { class: "empty", role: "status", id: "letters-message", hidden: true });
    this.list = el("div", { id: "letter-list" });
    place.replaceChildren(this.button, this.message, this.list);
  }

  async read() {
    this.button.disabled = true;
    this.show("Reading …", []);
    try {
      const { ok, status, body } = await this.get("dead-letters", { timeoutMs: TIMEOUT_MS });
      if (ok) this.show(this.summary(body), body.groups);
      else this.show(body?.message || `the server has answered with status ${status}`, []);
    } catch (error) {
      this.show(`The application does not answer (${error.name}).`, []);
    }
    this.button.disabled = false;
  }

  summary(body) {
    const which = body.is_complete ? "" : ", which are the last ones only";
    const groups = body.more_groups ? `; ${count(body.more_groups)} more groups` : "";
    const how = body.letters ? ". The commands print a plan; with --execute the second one sends the letters to the partitions they came from." : "";
    return `${count(body.letters)} letters in topic ${body.topic}${which}${body.redriven ? `, ${count(body.redriven)} of them re-driven` : ""}${groups}${how}`;
  }

  show(message, groups) {
    setText(this.message, message);
    this.message.hidden = !message;
    this.list.replaceChildren(...groups.map((group) => el("div", { class: "failure" },
      el("div", { class: "what" }, el("strong", {}, group.reason), badge(`${count(group.letters)} letters`, "warn"),
        group.redriven ? badge(`${count(group.redriven)} re-driven`, "good") : null, group.node ? el("span", {}, `at ${group.node}`) : null,
        el("span", { class: "muted" }, `${group.sources.length ? `from ${group.sources.join(", ")}, ` : ""}the first ${group.first} of ${moment(group.first_ms)} UTC`)),
      group.message ? el("p", {}, group.message) : null, group.line ? el("code", {}, group.line) : null,
      ...[group.show, group.redrive].filter(Boolean).map((command) => this.command(command)))));
  }

  command(text) {
    const shown = el("pre", { tabindex: 0, "aria-label": "Command" }, text);
    const copy = el("button", { type: "button" }, "Copy");
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        setText(copy, "Copied");
      } catch {
        // Not allowed here: the text is selected, so that the keys for copying do it.
        getSelection().selectAllChildren(shown);
        setText(copy, "Selected");
      }
    });
    return el("div", { class: "command" }, shown, copy);
  }
}
