// The history of the last hour as small plots.

import { brief, duration, el, percent, rate, setText, svg } from "./dom.js";

const WIDTH = 240, HEIGHT = 44, HOUR_MS = 3600000;
const PLOTS = [
  { name: "In", column: "in_rate", show: rate },
  { name: "Out", column: "out_rate", show: rate },
  { name: "Behind", column: "lag", show: (lag) => `${brief(lag)} records` },
  { name: "Behind in event time", column: "time_lag_ms", show: duration },
  { name: "Busy", column: "busy", show: percent, least: 0.1 },
  { name: "Lost", column: "lost_rate", show: rate },
];

export class Plots {
  constructor(place) {
    this.rows = [];
    this.parts = PLOTS.map((plot) => {
      const parts = { value: el("div", { class: "value" }, "–"), fill: svg("path", { class: "fill" }), line: svg("path", { class: "line" }), span: el("span"), top: el("span") };
      parts.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
        svg("path", { class: "base", d: `M0 ${HEIGHT} H${WIDTH}` }), parts.fill, parts.line);
      place.append(el("div", { class: "plot", "data-plot": plot.column }, el("div", { class: "name" }, plot.name), parts.value, parts.drawing, el("div", { class: "foot" }, parts.span, parts.top)));
      return parts;
    });
  }

  get last() {
    return this.rows.length ? this.rows[this.rows.length - 1][0] : 0;
  }

  forget() {
    this.rows = [];
  }

  add(history, nowMs) {
    const { last } = this;
    this.rows.push(...history.rows.filter((row) => row[0] > last));
    this.rows = this.rows.filter((row) => row[0] > nowMs - HOUR_MS);
    const first = this.rows.length ? this.rows[0][0] : nowMs;
    const span = Math.max(nowMs - first, 60000);
    PLOTS.forEach((plot, index) => this.draw(plot, this.parts[index], history.columns.indexOf(plot.column), nowMs, span));
  }

  draw(plot, parts, column, nowMs, span) {
    // What is unknown, as the lag of an application that has failed, is no zero: the line has a gap.
    const measured = this.rows.filter((row) => row[column] !== null);
    const values = measured.map((row) => row[column]);
    const isNow = measured.length > 0 && measured[measured.length - 1] === this.rows[this.rows.length - 1];
    const top = Math.max(plot.least || 1, ...values);
    const points = measured.map((row) => [WIDTH * (1 - (nowMs - row[0]) / span), HEIGHT - 2 - (HEIGHT - 6) * (row[column] / top)]);
    if (isNow) points.push([WIDTH, points[points.length - 1][1]]);
    const text = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join(" L");
    parts.line.setAttribute("d", points.length ? `M${text}` : "");
    parts.fill.setAttribute("d", points.length ? `M${points[0][0].toFixed(1)} ${HEIGHT} L${text} V${HEIGHT} z` : "");
    const shown = isNow ? plot.show(values[values.length - 1]) : "–";
    const highest = values.length ? plot.show(Math.max(...values)) : "–";
    setText(parts.value, shown);
    parts.value.classList.toggle("lost", plot.column === "lost_rate" && isNow && values[values.length - 1] > 0);
    setText(parts.span, `last ${duration(Math.min(span, HOUR_MS))}`);
    setText(parts.top, `max ${highest}`);
    parts.drawing.setAttribute("aria-label", `${plot.name}: now ${shown}, at most ${highest} in the last ${duration(span)}`);
  }
}
