// Dead letters by reason, node and line, read when asked for: the first of a group is shown, and the letters of a group
// are sent back to where they came from, after a plan.

import { badge, count, el, moment, setText } from "./dom.js";

const TIMEOUT_MS = 15000, REDRIVE_MS = 75000;

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
    const how = body.letters ? ". A re-drive sends letters to the partitions they came from, each once; the commands do the same in a terminal, where --test tries a new version of the script first." : "";
    return `${count(body.letters)} letters in topic ${body.topic}${which}${body.redriven ? `, ${count(body.redriven)} of them re-driven` : ""}${groups}${how}`;
  }

  show(message, groups) {
    setText(this.message, message);
    this.message.hidden = !message;
    this.list.replaceChildren(...groups.map((group) => this.group(group)));
  }

  group(group) {
    const result = el("div", { class: "result", role: "status" });
    const show = el("button", { type: "button", onclick: () => this.first(group, show, result) }, "Show the first");
    const plan = el("button", { type: "button", onclick: () => this.redrive(group, false, plan, result) }, "Plan re-drive");
    return el("div", { class: "failure" },
      el("div", { class: "what" }, el("strong", {}, group.reason), badge(`${count(group.letters)} letters`, "warn"),
        group.redriven ? badge(`${count(group.redriven)} re-driven`, "good") : null, group.node ? el("span", {}, `at ${group.node}`) : null,
        el("span", { class: "muted" }, `${group.sources.length ? `from ${group.sources.join(", ")}, ` : ""}the first ${group.first} of ${moment(group.first_ms)} UTC`)),
      group.message ? el("p", {}, group.message) : null, group.line ? el("code", {}, group.line) : null,
      el("div", { class: "command" }, show, plan), result,
      ...[group.show, group.redrive].filter(Boolean).map((command) => this.command(command)));
  }

  // Sends a request for a group, and shows what came of it with `shown`, or why nothing did.
  async ask(button, result, path, options, shown) {
    button.disabled = true;
    result.replaceChildren(el("p", { class: "muted" }, "Reading …"));
    try {
      const { ok, status, body } = await this.get(path, options);
      result.replaceChildren(...(ok ? shown(body) : [el("p", {}, body?.message || `the server has answered with status ${status}`)]));
    } catch (error) {
      result.replaceChildren(el("p", {}, `The application does not answer (${error.name}).`));
    }
    button.disabled = false;
  }

  first(group, button, result) {
    return this.ask(button, result, `dead-letters/${group.first}`, { timeoutMs: TIMEOUT_MS }, (letter) => {
      const rows = [["source", letter.source ?? "none"], ["time", `${moment(letter.timestamp)} UTC`], ["redrives", letter.redrives], ["key", letter.key], ["value", letter.value],
        ...letter.headers.map(([name, value]) => ["header", `${name}=${value}`])];
      const text = rows.map(([name, value]) => `${`${name}:`.padEnd(10)}${value}`).join("\n");
      return [el("pre", { class: "story", tabindex: 0, role: "region", "aria-label": "The first letter" }, letter.stacktrace ? `${text}\n\n${letter.stacktrace}` : text)];
    });
  }

  redrive(group, execute, button, result) {
    const body = { execute };
    for (const name of ["reason", "node", "line"]) if (group[name]) body[name] = group[name];
    return this.ask(button, result, "dead-letters/redrive", { body, timeoutMs: REDRIVE_MS }, (found) => {
      const list = (counts, how) => Object.entries(counts).map(([name, number]) => el("li", {}, how(count(number), name)));
      const rest = found.is_complete ? "" : " Not all letters were read in time: repeat it for the others.";
      const send = !execute && found.letters ? el("button", { type: "button", class: "primary send", onclick: () => this.redrive(group, true, send, result) }, `Send ${count(found.letters)} letters`) : null;
      return [el("p", {}, `${count(found.letters)} letters ${execute ? "were sent" : "would be sent; nothing was sent yet"}.${rest}`),
        el("ul", {}, ...list(found.sent, (number, source) => `${number} to ${source}`), ...list(found.refused, (number, why) => `${number} left: ${why}`)), ...(send ? [send] : [])];
    });
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
