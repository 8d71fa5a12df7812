// The topology: a drawing of the server, to which the numbers of each status are added.

import { brief, by, count, drawing, duration, el, nanoseconds, percent, rate, setAttribute, setText } from "./dom.js";

// Generated names without what they all have: KSTREAM-MAPVALUES-0000000001 is MAPVALUES-1.
export const shortName = (full) => full.replace(/^K(STREAM|TABLE)-(?=[A-Z]+-)/, "").replace(/-0+(\d+)$/, "-$1");

// The records that nodes have lost, sent to the dead letters, and left out on purpose.
export const dropsOf = (status, ...nodes) => nodes.flatMap((node) => Object.values(status.drops[node] || {})).reduce((sums, numbers) => sums.map((sum, index) => sum + numbers[index]), [0, 0, 0]);

const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);

export class Graph {
  constructor(place, details, get, onBrowse) {
    Object.assign(this, { place, details, get, onBrowse });
    this.nodes = [];
    this.isAll = false;
    this.chosen = 0;
    place.addEventListener("keydown", (event) => this.onKey(event));
    this.narrow = matchMedia("(max-width: 620px)");
    this.narrow.addEventListener("change", () => this.load());
  }

  // What the user has written, or each node of it.
  view(isAll) {
    this.isAll = isAll;
    this.isOpen = false;
    this.chosen = 0;
    by("simple").setAttribute("aria-pressed", String(!isAll));
    by("all-nodes").setAttribute("aria-pressed", String(isAll));
    return this.load();
  }

  show(status) {
    this.status = status;
    if (status.graph) {
      this.graphs = status.graph;
      setText(by("all-nodes"), `All ${count(this.graphs.all.boxes.filter((box) => box.nodes.length).length)} nodes`);
      this.load();
    } else this.update();
  }

  async load() {
    const round = this.round = (this.round || 0) + 1;
    if (!this.graphs) return;
    const query = [this.isAll ? "nodes=all" : "", this.narrow.matches ? "layout=list" : ""].filter(Boolean).join("&");
    const answer = await this.get(`topology.svg?${query}`, { isText: true }).catch(() => ({ ok: false }));
    if (!answer.ok || round !== this.round) return;
    const picture = this.narrow.matches ? drawing(answer.body, 1.2, 0) : drawing(answer.body);
    this.graph = this.isAll ? this.graphs.all : this.graphs.simple;
    this.titles = [...picture.querySelectorAll("[data-block]")];
    this.lines = [...picture.querySelectorAll("[data-edge]")];
    this.nodes = [...picture.querySelectorAll("[data-box]")].map((group, index) => {
      group.setAttribute("role", "button");
      group.setAttribute("tabindex", index === this.chosen ? 0 : -1);
      group.addEventListener("click", () => this.choose(index, true));
      return { group, line: group.querySelector(".rate"), kinds: group.getAttribute("class") };
    });
    this.place.replaceChildren(picture);
    this.described = null;
    this.update();
  }

  update() {
    const { status, graph } = this;
    if (!this.nodes.length) return;
    for (const title of this.titles) {
      const { block } = title.dataset;
      const sub = status.subs[block];
      setText(title, sub ? `sub-topology ${block}: ${count(sub.tasks)} ${sub.tasks === 1 ? "task" : "tasks"}, ${percent(sub.busy)} busy` : `sub-topology ${block}`);
    }
    // Of the edges that one stands for, the last whose rate was measured.
    this.rates = graph.edges.map(([, , ...path]) => path.map((edge) => status.edges[edge]).findLast((perSecond) => perSecond !== null && perSecond !== undefined) ?? null);
    this.rates.forEach((perSecond, index) => {
      setAttribute(this.lines[index], "stroke-width", perSecond ? Math.min(5, 1.2 + Math.log10(1 + perSecond) * 0.8).toFixed(1) : 1.2);
      setAttribute(this.lines[index], "class", perSecond === 0 ? "edge still" : "edge");
    });
    graph.boxes.forEach((box, index) => this.updateBox(box, index));
    this.describe();
  }

  rateOf(box, index) {
    const [, , came, went] = this.status.nodes[box.name] || [];
    if (came ?? went ?? false) return came ?? went;
    const at = (end) => this.rates.filter((perSecond, edge) => perSecond !== null && this.graph.edges[edge][end] === index);
    const [into, out] = [at(1), at(0)];
    // All that goes out of a topic is the same records.
    return into.length ? sum(into) : out.length ? Math.max(...out) : came ?? null;
  }

  updateBox(box, index) {
    const { status } = this;
    const { group, line, kinds } = this.nodes[index];
    const sub = status.subs[box.sub];
    const classes = [kinds];
    const [lost, sent, left] = dropsOf(status, ...box.nodes);
    const perSecond = this.rateOf(box, index);
    const parts = perSecond === null ? [] : [rate(perSecond)];
    const failed = status.failures.some((failure) => failure.is_fatal && box.nodes.includes(failure.node));
    if (failed) parts.push("failed");
    else if (lost) parts.push(`${brief(lost)} lost`);
    else if (sent) parts.push(`${brief(sent)} to letters`);
    else if (left) parts.push(`${brief(left)} left out`);
    if (failed || lost) classes.push("drops");
    if (box.nodes.length) {
      const busy = sub ? sub.busy : 0;
      classes.push(`b${busy > 0.8 ? 4 : busy > 0.5 ? 3 : busy > 0.2 ? 2 : busy > 0.02 ? 1 : 0}`);
      if (sub && sub.waiting) classes.push("waits");
    }
    if (index === this.chosen && this.isOpen) classes.push("chosen");
    const text = parts.join(" · ") || (box.stores.length ? "store" : box.kind);
    setAttribute(group, "class", classes.join(" "));
    setText(line, text);
    setAttribute(group, "aria-label", `${box.kind} ${box.name}, ${text}`);
  }

  choose(index, open) {
    this.nodes[this.chosen]?.group.setAttribute("tabindex", -1);
    this.chosen = index;
    const group = this.nodes[index].group;
    group.setAttribute("tabindex", 0);
    group.focus({ preventScroll: true });
    group.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (open) { this.isOpen = true; this.update(); }
  }

  onKey(event) {
    if (!this.nodes.length) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(this.chosen, true);
      return;
    }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const middle = ({ group }) => { const { left, top, width, height } = group.getBoundingClientRect(); return [left + width / 2, top + height / 2]; };
    const here = middle(this.nodes[this.chosen]);
    let best = null, least = Infinity;
    this.nodes.forEach((node, index) => {
      const [x, y] = middle(node);
      const dx = x - here[0], dy = y - here[1];
      const ahead = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      const cost = ahead + 2 * aside;
      if (ahead > 1 && cost < least) { best = index; least = cost; }
    });
    if (best !== null) this.choose(best, false);
  }

  describe() {
    const { status, graph } = this;
    const box = this.isOpen ? graph.boxes[this.chosen] : null;
    const rows = [];
    if (!box) {
      if (!this.details.childElementCount) this.details.replaceChildren(el("p", { class: "muted" }, "Choose a box to see its records, drops and tasks."));
      return;
    }
    const sub = status.subs[box.sub];
    const node = status.nodes[box.name];
    if (node) ["in", "out", "in per second", "out per second"].forEach((term, at) => { if (node[at] !== null) rows.push([term, at < 2 ? count(node[at]) : rate(node[at])]); });
    const shared = [];
    if (sub) {
      const own = status.tasks.rows.filter((row) => row[0].startsWith(`${box.sub}_`));
      const late = own.map((row) => row[6]).filter((lag) => lag !== null);
      shared.push(["busy", percent(sub.busy)], ["time per record", nanoseconds(sub.ns)], ["behind", `${count(sum(own.map((row) => row[5])))} records`]);
      if (late.length) shared.push(["behind in event time", duration(Math.max(...late))]);
      if (sub.waiting) shared.push(["tasks that wait", count(sub.waiting)]);
    }
    if (status.out_of_step[box.name]) rows.push(["not in step", status.out_of_step[box.name]]);
    const stores = box.kind === "store" ? [box.name] : [...box.stores, ...graph.uses.filter(([user]) => user === this.chosen).flatMap(([, store]) => (graph.boxes[store].kind === "store" ? [graph.boxes[store].name] : graph.boxes[store].stores))];
    const drops = box.nodes.flatMap((name) => Object.entries(status.drops[name] || {})).map(([reason, numbers]) => [reason, sum(numbers)]);
    const text = JSON.stringify([box.name, rows, shared, drops, stores]);
    if (this.described === text) return;
    this.described = text;
    const list = (pairs) => el("dl", {}, ...pairs.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
    const others = box.nodes.filter((name) => name !== box.name);
    this.details.replaceChildren(
      el("h3", {}, box.name), el("p", { class: "muted" }, `${box.kind}, sub-topology ${box.sub}${others.length ? `; with ${others.join(", ")}` : ""}`), list(rows),
      ...(drops.length ? [el("p", {}, "Records not passed on"), list(drops.map(([reason, number]) => [reason, count(number)]))] : []),
      ...(shared.length ? [el("p", {}, `Of its ${count(sub.tasks)} ${sub.tasks === 1 ? "task" : "tasks"}`), list(shared)] : []),
      ...[...new Set(stores)].map((name) => el("button", { type: "button", onclick: () => this.onBrowse(name) }, `Browse ${name}`)));
  }
}

export function legend() {
  by("legend").replaceChildren(...[["b0", "up to 2 % busy"], ["b2", "20 %"], ["b4", "80 %"], ["waits", "waits for input"]].map(([kind, text]) => el("span", { class: kind }, text)));
}
