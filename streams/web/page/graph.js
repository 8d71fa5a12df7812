// The topology: boxes on ranks and lanes that the server has computed, with live rates on the edges.

import { brief, by, count, duration, el, nanoseconds, percent, rate, setAttribute, setText, svg } from "./dom.js";

const WIDTH = 152, HEIGHT = 46, MARGIN = 26;
const ACROSS = { rank: WIDTH + 54, lane: HEIGHT + 22 };
const DOWN = { rank: HEIGHT + 48, lane: WIDTH + 18 };
const KINDS = { source: "source", processor: "processor", sink: "sink", topic: "topic", store: "store" };

// Generated names without what they all have: KSTREAM-MAPVALUES-0000000001 is MAPVALUES-1.
export const shortName = (full) => full.replace(/^K(STREAM|TABLE)-(?=[A-Z]+-)/, "").replace(/-0+(\d+)$/, "-$1");
const cut = (full, length = 19) => {
  const name = shortName(full);
  if (name.length <= length) return name;
  const end = Math.floor(length / 2) - 1;
  return `${name.slice(0, length - end - 1)}…${name.slice(-end)}`;
};

// The records that a node has lost, sent to the dead letters, and left out on purpose.
export const dropsOf = (status, node) => Object.values(status.drops[node] || {}).reduce((sums, numbers) => sums.map((sum, index) => sum + numbers[index]), [0, 0, 0]);

export class Graph {
  constructor(place, details, onBrowse) {
    this.place = place;
    this.details = details;
    this.onBrowse = onBrowse;
    this.turned = null;
    this.chosen = null;
    this.graph = null;
    place.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => { if (this.graph && this.isDown() !== this.drawnDown) this.draw(); }).observe(place);
  }

  isDown() {
    if (this.turned !== null) return this.turned;
    const ranks = 1 + Math.max(0, ...this.graph.boxes.map((box) => box.rank));
    const lanes = 1 + Math.max(0, ...this.graph.boxes.map((box) => box.lane));
    const room = this.place.clientWidth;
    if (ranks * ACROSS.rank <= room + ACROSS.rank - WIDTH) return false;
    return lanes * DOWN.lane <= room || lanes < ranks / 2 || room < 500;
  }

  turn() {
    this.turned = !this.isDown();
    this.draw();
  }

  show(status) {
    this.status = status;
    if (status.graph) {
      this.graph = status.graph;
      this.chosen = this.chosen === null || this.chosen >= this.graph.boxes.length ? 0 : this.chosen;
      this.draw();
    } else this.update();
  }

  draw() {
    const { boxes, edges, uses } = this.graph;
    const down = this.drawnDown = this.isDown();
    const step = down ? DOWN : ACROSS;
    for (const box of boxes) {
      box.x = MARGIN + (down ? box.lane * step.lane : box.rank * step.rank);
      box.y = MARGIN + (down ? box.rank * step.rank : box.lane * step.lane);
    }
    const width = Math.max(0, ...boxes.map((box) => box.x)) + WIDTH + MARGIN;
    const height = Math.max(0, ...boxes.map((box) => box.y)) + HEIGHT + MARGIN;
    const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` },
      svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" },
        svg("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }))));
    this.blocks = this.drawBlocks(drawing, boxes);
    for (const [user, store] of uses) {
      const ends = boxes[user].rank > boxes[store].rank ? [store, user] : [user, store];
      drawing.append(svg("path", { class: "use", d: this.path(boxes[ends[0]], boxes[ends[1]], down) }));
    }
    this.lines = edges.map(([start, end]) => {
      const line = svg("path", { class: "edge", d: this.path(boxes[start], boxes[end], down), "marker-end": "url(#arrow)" });
      drawing.append(line);
      return line;
    });
    const outs = edges.reduce((found, [start]) => found.set(start, (found.get(start) || 0) + 1), new Map());
    this.labels = edges.map(([start, end]) => {
      const [x, y] = this.middle(boxes[start], boxes[end], down, outs.get(start) > 1);
      const label = svg("text", { class: "rate on-edge", x, y });
      drawing.append(label);
      return label;
    });
    this.nodes = boxes.map((box, index) => this.drawBox(drawing, box, index));
    this.place.replaceChildren(drawing);
    this.update();
  }

  drawBlocks(drawing, boxes) {
    const groups = new Map();
    for (const box of boxes) groups.set(box.sub, [...(groups.get(box.sub) || []), box]);
    const titles = new Map();
    for (const [sub, members] of groups) {
      const x = Math.min(...members.map((box) => box.x)) - 10, y = Math.min(...members.map((box) => box.y)) - 22;
      const right = Math.max(...members.map((box) => box.x)) + WIDTH + 10, bottom = Math.max(...members.map((box) => box.y)) + HEIGHT + 9;
      const title = svg("text", { class: "block-title", x: x + 8, y: y + 14 });
      drawing.append(svg("rect", { class: "block", x, y, width: right - x, height: bottom - y, rx: 8 }), title);
      titles.set(sub, title);
    }
    return titles;
  }

  drawBox(drawing, box, index) {
    const rx = box.kind === "topic" ? HEIGHT / 2 : box.kind === "store" ? 12 : 6;
    const name = svg("text", { x: 12, y: 19 }, cut(box.name));
    const line = svg("text", { x: 12, y: 36, class: "rate" });
    if (box.kind === "topic") { name.setAttribute("x", 18); line.setAttribute("x", 18); }
    const group = svg("g", { class: "box", role: "button", tabindex: index === this.chosen ? 0 : -1, transform: `translate(${box.x} ${box.y})`, "data-name": box.name, "data-kind": box.kind },
      svg("title", {}, box.name), svg("rect", { width: WIDTH, height: HEIGHT, rx }), name, line);
    group.addEventListener("click", () => this.choose(index, true));
    drawing.append(group);
    return { group, line };
  }

  ends(one, other, down) {
    const back = other.rank <= one.rank;
    if (back && one.rank === other.rank) return [one.x + WIDTH / 2, one.y + (other.y > one.y ? HEIGHT : 0), other.x + WIDTH / 2, other.y + (other.y > one.y ? 0 : HEIGHT), down ? "side" : "stack"];
    if (down) return [one.x + WIDTH / 2, one.y + HEIGHT, other.x + WIDTH / 2, other.y, "down"];
    return [one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2, "across"];
  }

  path(one, other, down) {
    const [x1, y1, x2, y2, how] = this.ends(one, other, down);
    if (how === "side") return `M${one.x < other.x ? one.x + WIDTH : one.x} ${one.y + HEIGHT / 2} L${one.x < other.x ? other.x : other.x + WIDTH} ${other.y + HEIGHT / 2}`;
    if (how === "stack") return `M${x1} ${y1} L${x2} ${y2}`;
    const bend = how === "down" ? Math.max(26, Math.abs(y2 - y1) / 2) : Math.max(34, Math.abs(x2 - x1) / 2);
    return how === "down" ? `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` : `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }

  // Of several edges from one box, near their ends, where they have parted.
  middle(one, other, down, isParted) {
    const [x1, y1, x2, y2] = this.ends(one, other, down);
    if (isParted) return down ? [x2, y2 - 10] : [x2 - 24, y2 - 6];
    return [(x1 + x2) / 2, (y1 + y2) / 2 + (down ? 4 : -5)];
  }

  update() {
    const { status, graph } = this;
    if (!graph) return;
    for (const [sub, title] of this.blocks) {
      const found = status.subs[sub];
      setText(title, found ? `sub-topology ${sub}: ${count(found.tasks)} ${found.tasks === 1 ? "task" : "tasks"}, ${percent(found.busy)} busy` : `sub-topology ${sub}`);
    }
    graph.boxes.forEach((box, index) => this.updateBox(box, index));
    status.edges.forEach((found, index) => {
      const line = this.lines[index];
      setText(this.labels[index], found ? rate(found) : "");
      setAttribute(line, "stroke-width", found ? Math.min(5, 1.2 + Math.log10(1 + found) * 0.8).toFixed(1) : 1.2);
      setAttribute(line, "class", found === 0 ? "edge still" : "edge");
    });
    this.describe();
  }

  updateBox(box, index) {
    const { status } = this;
    const { group, line } = this.nodes[index];
    const sub = status.subs[box.sub];
    const isNode = !["topic", "store"].includes(box.kind);
    const classes = ["box", box.kind];
    let text = KINDS[box.kind] || box.kind;
    if (isNode) {
      const [, , came, went] = status.nodes[box.name] || [];
      const [lost, sent, left] = dropsOf(status, box.name);
      const shown = came ?? went;
      if (shown !== null && shown !== undefined) text = rate(shown);
      const failed = status.failures.some((failure) => failure.is_fatal && failure.node === box.name);
      if (failed) text = "failed";
      else if (lost) text += ` · ${brief(lost)} lost`;
      else if (sent) text += ` · ${brief(sent)} to letters`;
      else if (left) text += ` · ${brief(left)} left out`;
      if (failed || lost) classes.push("drops");
      const busy = sub ? sub.busy : 0;
      classes.push(`b${busy > 0.8 ? 4 : busy > 0.5 ? 3 : busy > 0.2 ? 2 : busy > 0.02 ? 1 : 0}`);
      if (sub && sub.waiting) classes.push("waits");
    }
    if (index === this.chosen && this.isOpen) classes.push("chosen");
    setAttribute(group, "class", classes.join(" "));
    setText(line, text);
    setAttribute(group, "aria-label", `${KINDS[box.kind] || box.kind} ${box.name}, ${text}`);
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
    if (this.chosen === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(this.chosen, true);
      return;
    }
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const here = this.graph.boxes[this.chosen];
    let best = null, least = Infinity;
    this.graph.boxes.forEach((box, index) => {
      const dx = box.x - here.x, dy = box.y - here.y;
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
    if (node && box.kind !== "topic" && box.kind !== "store") {
      rows.push(["in", count(node[0])], ["out", count(node[1])], ["in per second", rate(node[2])], ["out per second", rate(node[3])]);
    }
    if (sub) {
      rows.push(["tasks", count(sub.tasks)], ["busy", percent(sub.busy)], ["a record takes", nanoseconds(sub.ns)]);
      if (sub.waiting) rows.push(["tasks that wait", count(sub.waiting)]);
      const lags = status.tasks.rows.filter((row) => row[0].startsWith(`${box.sub}_`));
      rows.push(["lag", count(lags.reduce((sum, row) => sum + row[5], 0))]);
      const late = lags.map((row) => row[6]).filter((lag) => lag !== null);
      if (late.length) rows.push(["lag in event time", duration(Math.max(...late))]);
    }
    if (status.out_of_step[box.name]) rows.push(["not in step", status.out_of_step[box.name]]);
    const stores = graph.uses.filter(([user, store]) => user === this.chosen || store === this.chosen).map(([, store]) => graph.boxes[store].name);
    const drops = Object.entries(status.drops[box.name] || {}).map(([reason, numbers]) => [reason, numbers.reduce((sum, one) => sum + one)]);
    const text = JSON.stringify([box.name, rows, drops, stores]);
    if (this.described === text) return;
    this.described = text;
    this.details.replaceChildren(
      el("h3", {}, box.name), el("p", { class: "muted" }, `${KINDS[box.kind] || box.kind}, sub-topology ${box.sub}`),
      el("dl", {}, ...rows.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value)))),
      ...(drops.length ? [el("p", {}, "Dropped"), el("dl", {}, ...drops.map(([reason, number]) => el("div", {}, el("dt", {}, reason), el("dd", {}, count(number)))))] : []),
      ...[...new Set(stores)].map((name) => el("button", { type: "button", onclick: () => this.onBrowse(name) }, `Browse ${name}`)));
  }
}

export function legend() {
  by("legend").replaceChildren(...[["b0", "idle"], ["b2", "busy"], ["b4", "very busy"], ["waits", "waits for input"]].map(([kind, text]) => el("span", { class: kind }, text)));
}
