// Elements, texts for numbers, and tables.  Texts are set as texts only: keys and messages may contain anything.

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);
export const by = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// An attribute that is set again to its value makes the browser style the element again.
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const percents = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0 });

export const count = (number) => (number === null || number === undefined ? "–" : whole.format(Math.round(number)));
export const brief = (number) => (number === null ? "–" : number < 10000 ? whole.format(number < 10 ? Math.round(number * 10) / 10 : Math.round(number)) : short.format(number));
export const rate = (number) => (number === null || number === undefined ? "–" : `${brief(number)}/s`);
export const percent = (share) => percents.format(share);

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${whole.format(Math.round(seconds / 86400))} days`;
}

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
export const nanoseconds = (ns) => (ns === null || ns === undefined ? "–" : `${digits.format(ns / 1e3)} µs`);

export function moment(ms) {
  if (ms === null || ms === undefined) return "–";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().replace("T", " ").slice(0, 19);
}

export function badge(text, kind) {
  return el("span", { class: `badge ${kind || ""}` }, text);
}

// A drawing of the server, which fits its place, but is not made smaller than is readable.
const LEAST_SCALE = 0.6;
export function drawing(text, largest = 1, least = LEAST_SCALE) {
  const picture = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  const width = Number(picture.getAttribute("width"));
  picture.removeAttribute("width");
  picture.removeAttribute("height");
  picture.style.maxWidth = `${width * largest}px`;
  picture.style.minWidth = `${width * least}px`;
  return picture;
}

// A table with columns {title, of, show, kind, meter}: `of` is the value for sorting, `show` its text.
// Rows are reused in place, so that what has the focus keeps it.
export class Table {
  constructor(place, label, columns, { sorted = -1, down = false, empty = "none" } = {}) {
    this.columns = columns;
    this.sorted = sorted;
    this.down = down;
    this.rows = [];
    this.limit = Infinity;
    this.body = el("tbody");
    this.heads = columns.map((column, index) => this.head(column, index));
    this.empty = el("p", { class: "empty" }, empty);
    this.frame = el("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 },
      el("table", {}, el("thead", {}, el("tr", {}, ...this.heads)), this.body));
    place.replaceChildren(this.frame, this.empty);
    this.mark();
  }

  head(column, index) {
    const inner = this.sorted < 0 ? column.title : el("button", { type: "button", onclick: () => this.sort(index) }, column.title);
    return el("th", { scope: "col", class: column.kind || "" }, inner);
  }

  sort(index) {
    this.down = this.sorted === index ? !this.down : (this.columns[index].kind || "").includes("number");
    this.sorted = index;
    this.mark();
    this.show(this.rows);
  }

  mark() {
    this.heads.forEach((head, index) => {
      if (index === this.sorted) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const button = head.querySelector("button");
      if (button) setText(button, this.columns[index].title + (index === this.sorted ? (this.down ? " ↓" : " ↑") : ""));
    });
  }

  show(rows) {
    this.rows = rows;
    if (this.sorted >= 0) {
      const of = this.columns[this.sorted].of;
      const sign = this.down ? -1 : 1;
      rows = [...rows].sort((one, other) => {
        const a = of(one), b = of(other);
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (a < b ? -1 : a > b ? 1 : 0);
      });
    }
    const shown = rows.slice(0, this.limit);
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    const missing = document.createDocumentFragment();
    shown.forEach((row, index) => {
      let line = this.body.rows[index];
      if (!line) {
        line = el("tr", {}, ...this.columns.map((column) => el("td", { class: column.kind || "" })));
        missing.append(line);
      }
      this.columns.forEach((column, at) => {
        const cell = line.cells[at];
        const text = column.show ? column.show(row) : String(column.of(row) ?? "–");
        if (column.draw) {
          if (cell.dataset.text !== text) { cell.dataset.text = text; cell.replaceChildren(column.draw(row, text)); }
        } else setText(cell, text);
      });
    });
    this.body.append(missing);
    this.frame.hidden = !rows.length;
    this.empty.hidden = rows.length > 0;
  }
}

export function meter(share) {
  const bar = el("i");
  bar.style.width = `${Math.round(share * 100)}%`;
  return el("span", { class: "meter", "aria-hidden": "true" }, bar);
}
