// The live page: asks for the status each two seconds, and shows it.

import { Table, badge, by, count, duration, el, meter, moment, nanoseconds, percent, rate, setText } from "./dom.js";
import { Graph, legend, shortName } from "./graph.js";
import { Letters } from "./letters.js";
import { Plots } from "./plots.js";
import { Stores } from "./stores.js";
import { Why } from "./why.js";

const EVERY_MS = 2000, TIMEOUT_MS = 8000, FEW_TASKS = 100;
const STATES = { RUNNING: "good", REBALANCING: "warn", CREATED: "warn", PENDING_SHUTDOWN: "warn", NOT_RUNNING: "bad", PENDING_ERROR: "bad", ERROR: "bad" };
const TASK_STATES = { running: "good", idle: "", waiting: "warn", ahead: "warn", restoring: "warn", paused: "warn" };

let token = sessionStorage.getItem("streams-token");
let graphId = "";
let isPaused = false;
let timer = 0;
let round = 0;

// With a body it is a POST, which may need the token where reading does not.
const refused = new Set();
async function get(path, { body: sent, isText = false, method = sent ? "POST" : "GET", signal, timeoutMs = TIMEOUT_MS } = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const signals = [AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])];
  const answer = await fetch(path, { method, body: sent && JSON.stringify(sent), headers, cache: "no-store", signal: AbortSignal.any(signals) });
  if (answer.status === 401) refused.add(method);
  else refused.delete(method);
  by("token-form").hidden = !refused.size;
  let body = null;
  try { body = await (isText ? answer.text() : answer.json()); } catch { /* No JSON: the status says what there is to say. */ }
  return { ok: answer.ok, status: answer.status, body };
}

const stateBadge = (states) => (row, text) => badge(text, states[text]);
/** For what a task waits: an input, a task upstream, or both; and the tasks that it waits for no more. */
function waitOf(row) {
  const what = [row.waits_for, row.awaited && `task ${row.awaited}`].filter(Boolean).join(" of ");
  return [what && `${what}, ${duration(row.waited_ms)}`, row.passed_over && `no more for ${row.passed_over}`].filter(Boolean).join("; ");
}
const share = (of) => ({ of, show: (row) => percent(of(row)), draw: (row, text) => { const part = el("span"); part.append(meter(of(row)), text); return part; }, kind: "number" });

const stores = new Stores(by("browser"), get);
const why = new Why(by("asking"), get);
new Letters(by("letters"), get);
const graph = new Graph(by("graph"), by("details"), get, (name) => stores.browse(name));
const plots = new Plots(by("plots"));
const tasks = new Table(by("task-table"), "Tasks", [
  { title: "Task", of: (row) => row.order, show: (row) => row.task, kind: "word" },
  { title: "Owner", of: (row) => row.owner, kind: "wide long" },
  { title: "State", of: (row) => row.state, draw: stateBadge(TASK_STATES), kind: "word" },
  { title: "Records/s", of: (row) => row.rate, show: (row) => rate(row.rate), kind: "number" },
  { ...share((row) => row.part), title: "Share", kind: "number wide" },
  { title: "Lag", of: (row) => row.lag, show: (row) => count(row.lag), kind: "number" },
  { title: "Event-time lag", of: (row) => row.time_lag_ms, show: (row) => duration(row.time_lag_ms), kind: "number wide" },
  { title: "Stream time", of: (row) => row.stream_time_ms, show: (row) => moment(row.stream_time_ms), kind: "word wide" },
  { title: "Waits for", of: (row) => waitOf(row), kind: "wait" },
  { title: "Per record", of: (row) => row.ns, show: (row) => nanoseconds(row.ns), kind: "number wide" },
  { ...share((row) => row.busy), title: "Busy", kind: "number wide" },
  { title: "Lost", of: (row) => row.lost, show: (row) => count(row.lost), kind: "number wide" },
], { sorted: 5, down: true, empty: "No task is assigned here." });
tasks.limit = FEW_TASKS;
const threads = new Table(by("thread-table"), "Threads", [
  { title: "Thread", of: (row) => row.name, draw: (row, text) => el("button", { type: "button", class: "link", title: "Show its stack", onclick: () => showStack(text) }, text), kind: "long" },
  { title: "State", of: (row) => row.state, draw: stateBadge({ running: "good", assigning: "warn", stopping: "bad" }), kind: "word" },
  { title: "Tasks", of: (row) => row.tasks, show: (row) => count(row.tasks), kind: "number" },
  { title: "Standbys", of: (row) => row.standbys, show: (row) => count(row.standbys), kind: "number wide" },
  { title: "Records/s", of: (row) => row.rate, show: (row) => rate(row.rate), kind: "number" },
  { ...share((row) => row.processing), title: "Processing" },
  { ...share((row) => row.polling), title: "Polling", kind: "number wide" },
  { ...share((row) => row.committing), title: "Committing", kind: "number wide" },
  { title: "Last turn", of: (row) => row.turn_age_ms, show: (row) => (row.turn_age_ms === null ? "–" : `${duration(row.turn_age_ms)} ago`), kind: "number wide" },
]);
const instances = new Table(by("instance-table"), "Instances", [
  { title: "Instance", of: (row) => row.client + (row.is_local ? " (this one)" : ""), kind: "long" },
  { title: "Address", of: (row) => row.endpoint || "no HTTP", kind: "word wide" },
  { title: "State", of: (row) => row.error || row.state || "not asked", draw: (row, text) => (row.error ? el("span", {}, badge("left out", "bad"), ` ${text}`) : badge(text, STATES[text])) },
  { title: "Threads", of: (row) => row.threads, kind: "number wide" },
  { title: "Tasks", of: (row) => row.tasks, kind: "number" },
  { title: "Standbys", of: (row) => row.standbys, kind: "number wide" },
]);
const restoring = new Table(by("restoring"), "Tasks that are restored", [
  { title: "Task", of: (row) => row.task, kind: "word" },
  { title: "Owner", of: (row) => row.thread, kind: "wide long" },
  { title: "Records left", of: (row) => row.remaining, show: (row) => count(row.remaining), kind: "number" },
  { title: "Ready in about", of: (row) => row.eta_ms, show: (row) => duration(row.eta_ms), kind: "number" },
]);
const dropTable = (id, label, empty) => new Table(by(id), label, [
  { title: "Node", of: (row) => shortName(row.node), kind: "long" },
  { title: "Why", of: (row) => row.reason, kind: "long" },
  { title: "Records", of: (row) => row.count, show: (row) => count(row.count), kind: "number" },
  { title: "The first", of: (row) => row.example, kind: "long wide" },
], { empty });
const lost = dropTable("drop-table", "Lost records", "No record was lost.");
const late = new Table(by("late-table"), "How late records were", [
  { title: "Node", of: (row) => shortName(row.node), kind: "long" },
  { title: "Grace longer by", of: (row) => row.more, show: (row) => duration(row.more), kind: "number" },
  { title: "Records", of: (row) => row.count, show: (row) => count(row.count), kind: "number" },
  { ...share((row) => row.keeps), title: "Keeps" },
], { empty: "No record came after its window had closed." });
const leftOut = dropTable("left-table", "Records left out on purpose", "No record was left out.");
const settings = new Table(by("setting-table"), "Settings", [
  { title: "Setting", of: (row) => row.name, kind: "mono" },
  { title: "Value", of: (row) => `${row.value}${row.unit ? ` ${row.unit}` : ""}`, kind: "long mono" },
  { title: "Default", of: (row) => row.default, kind: "mono wide" },
], { empty: "All settings have their defaults." });

/** Where a thread is now: what its tasks wait for, and its stack. */
async function showStack(name) {
  const answer = await get(`threads/${encodeURIComponent(name)}`).catch((error) => ({ ok: false, body: { message: `The application does not answer (${error.name}).` } }));
  const { tasks: rows = [], stack, turn_age_ms: age, message = `the server has answered with status ${answer.status}` } = answer.body || {};
  const lines = rows.map((row) => `task ${row.task}: ${[row.state, row.stream_time_ms !== null && `stream time ${moment(row.stream_time_ms)}`, waitOf(row) && `waits for ${waitOf(row)}`].filter(Boolean).join(", ")}`);
  by("stack").hidden = false;
  setText(by("stack"), answer.ok ? [`${name}${age === null ? "" : `, in its turn for ${duration(age)}`}`, ...lines, "", stack || "The thread has ended."].join("\n") : message);
}

let shownTasks = [];
function showTasks() {
  const words = by("task-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = shownTasks.filter((row) => words.every((word) => row.text.includes(word)));
  tasks.show(found);
  setText(by("task-count"), found.length === shownTasks.length ? `${count(found.length)}` : `${count(found.length)} of ${count(shownTasks.length)}`);
  const button = by("all-tasks");
  button.hidden = found.length <= FEW_TASKS;
  setText(button, tasks.limit === FEW_TASKS ? `Show all ${count(found.length)} tasks` : `Show the first ${FEW_TASKS}`);
}

let restoreTotal = 0;
/** How far all restores are, with those that have ended since the first was seen. */
function showRestore({ restoring: rows, tasks: { rows: owned } }) {
  by("restore").hidden = !rows.length;
  const left = rows.reduce((sum, row) => sum + row.remaining, 0);
  restoreTotal = rows.length ? Math.max(restoreTotal, left + rows.reduce((sum, row) => sum + row.done, 0)) : 0;
  if (!rows.length) return;
  const part = restoreTotal ? 1 - left / restoreTotal : 0;
  const times = rows.map((row) => row.eta_ms).filter((eta) => eta !== null);
  setText(by("restore-title"), `Restoring ${count(rows.length)} of ${count(Math.max(owned.length, rows.length))} tasks`);
  by("restore-bar").value = part;
  setText(by("restore-left"), `${percent(part)}, ${count(left)} records left${times.length ? `, about ${duration(Math.max(...times))}` : ""}`);
  restoring.show(rows);
}

/** Is it well, since when, is it behind, was something lost: in the sentence of the server, and numbers in the navigation. */
function showHealth(status) {
  const { health, tasks: { rows } } = status;
  const text = JSON.stringify(health);
  if (by("health").dataset.text === text) return;
  by("health").dataset.text = text;
  by("health").replaceChildren(...health.flatMap(([kind, words, to], index) => [index ? " · " : "", to ? el("a", { class: kind, href: to }, words) : words]));
  setText(by("nav-tasks"), count(rows.length));
  setText(by("nav-stores"), count(new Set((graph.graphs?.all.boxes || []).filter((box) => box.kind === "store").map((box) => box.name)).size));
  const problems = status.failures.length + Object.values(status.drops).flatMap((reasons) => Object.values(reasons)).filter(([number]) => number).length;
  setText(by("nav-problems"), problems ? count(problems) : "");
}

let shownEvents = "";
function showEvents(status) {
  const failures = status.failures.map((failure) => [failure.at_ms, failure.task ? `task ${failure.task}` : "", `${failure.error}: ${failure.message}`, "bad"]);
  const events = [...status.events, ...failures].sort((one, other) => other[0] - one[0]).slice(0, 50);
  const text = JSON.stringify(events);
  if (text === shownEvents) return;
  shownEvents = text;
  by("event-list").replaceChildren(...events.map(([at, who, what, kind]) => el("li", { class: kind || STATES[what] || "" }, el("time", { class: "muted" }, moment(at)), el("span", {}, what), el("span", { class: "muted" }, who))));
}

const objects = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));

let knownFailures = "";
function showFailures(status) {
  const text = JSON.stringify(status.failures);
  if (text === knownFailures) return;
  knownFailures = text;
  by("failure-list").replaceChildren(...(status.failures.length ? status.failures.map((found) => el("div", { class: "failure" },
    el("div", { class: "what" }, el("strong", {}, found.error), badge(found.is_fatal ? "a thread ended" : found.sent_to ? `sent to ${found.sent_to}` : "record lost", found.sent_to ? "info" : "bad"),
      found.node ? el("span", { title: found.node }, `at ${shortName(found.node)}`) : null, found.task ? el("span", { class: "muted" }, `task ${found.task}`) : null,
      el("span", { class: "muted" }, `${moment(found.at_ms)} UTC${found.count > 1 ? `, ${count(found.count)} times` : ""}`)),
    el("p", {}, found.message), found.place ? el("code", {}, found.place) : null)) : [el("p", { class: "empty" }, "No error since the start.")]));
}

/** Why an application has stopped, before anything else. */
function showStop(status) {
  const failure = ["ERROR", "PENDING_ERROR"].includes(status.state) ? status.failures.find((each) => each.is_fatal) : null;
  by("stop").hidden = !failure;
  if (failure) setText(by("stop-text"), `Stopped ${duration(status.now_ms - failure.at_ms)} ago: ${failure.error}${failure.place ? ` at ${failure.place.split(":").slice(0, 2).join(":").replace(/^.*\//, "")}` : ""}${failure.node ? ` in ${shortName(failure.node)}` : ""}: ${failure.message}`);
}

function show(status) {
  setText(by("application"), status.application_id);
  const state = by("state");
  const problems = status.totals.failures + status.totals.lost;
  document.title = `${status.application_id} · ${status.state_text.toLowerCase()}${problems ? ` · ${count(problems)} problems` : ""}`;
  setText(state, status.state_text);
  state.className = `badge ${STATES[status.state] || ""}`;
  plots.add(status.history, status.now_ms);
  graph.show(status);
  if (status.graph) why.know(status.graph);
  graphId = status.graph_id;
  const totals = status.totals;
  // By what comes now: an owner counts since it has the task.
  const rates = {};
  for (const row of objects(status.tasks)) rates[row.task.split("_")[0]] = (rates[row.task.split("_")[0]] || 0) + row.rate;
  shownTasks = objects(status.tasks).map((row) => {
    const [sub, partition] = row.task.split("_").map(Number);
    const owner = status.threads.rows[row.thread]?.[0] || "";
    return { ...row, owner, part: row.rate / (rates[sub] || 1), order: sub * 1e6 + partition, text: `${row.task} ${row.state} ${owner} ${waitOf(row)}`.toLowerCase() };
  });
  showTasks();
  showRestore(status);
  showHealth(status);
  showEvents(status);
  showFailures(status);
  showStop(status);
  const examples = new Map(status.drop_examples.map(([node, reason, text]) => [JSON.stringify([node, reason]), text]));
  const dropped = (column) => Object.entries(status.drops).flatMap(([node, found]) => Object.entries(found).filter(([, numbers]) => numbers[column]).map(([reason, numbers]) => {
    const meaning = status.meanings[reason.split(",")[0]];
    return { node, reason: meaning ? `${reason}: ${meaning}` : reason, count: numbers[column], example: examples.get(JSON.stringify([node, reason])) || "" };
  }));
  lost.show(dropped(0));
  leftOut.show(dropped(2));
  late.show(Object.entries(status.late).flatMap(([node, counts]) => {
    const rows = Object.entries(counts).map(([more, [number]]) => ({ node, more: Number(more), count: number })).sort((one, other) => one.more - other.more);
    const total = rows.reduce((sum, row) => sum + row.count, 0);
    return rows.map((row, index) => ({ ...row, keeps: rows.slice(0, index + 1).reduce((sum, each) => sum + each.count, 0) / total }));
  }));
  setText(by("problem-count"), `${count(totals.failures)} errors, ${count(totals.lost)} records lost, ${count(totals.dead_letters)} dead letters`);
  instances.show(status.instances);
  threads.show(objects(status.threads));
  settings.show(status.settings);
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++round;
  try {
    const answer = await get(`status?scope=${by("scope").value}&since=${plots.last}&graph=${graphId}`);
    if (mine !== round) return;
    if (answer.ok) {
      const start = performance.now();
      show(answer.body);
      document.documentElement.dataset.renderMs = (performance.now() - start).toFixed(1);
      document.documentElement.dataset.rounds = String(Number(document.documentElement.dataset.rounds || 0) + 1);
      answeredAt = performance.now();
      by("trouble").hidden = true;
      document.body.classList.remove("old");
      setText(by("age"), `${moment(answer.body.now_ms).slice(11)} UTC`);
    } else trouble(answer.body?.message || `the server has answered with status ${answer.status}`);
  } catch (error) {
    if (mine === round) noAnswer();
  }
  if (!isPaused && mine === round) timer = setTimeout(refresh, EVERY_MS);
}

let answeredAt = performance.now();
/** In the header, which stays when the page is scrolled: nothing below it is true any more. */
function noAnswer() {
  const age = duration(performance.now() - answeredAt);
  setText(by("state"), `no answer for ${age}`);
  by("state").className = "badge bad";
  document.title = `${by("application").textContent} · no answer`;
  document.body.classList.add("old");
  trouble(`The application does not answer: it has ended, or cannot be reached. What is shown is ${age} old.`);
}

function trouble(text) {
  setText(by("trouble"), text);
  by("trouble").hidden = false;
}

by("pause").addEventListener("click", (event) => {
  isPaused = !isPaused;
  event.target.setAttribute("aria-pressed", String(isPaused));
  setText(event.target, isPaused ? "Continue" : "Pause updates");
  if (isPaused) { round += 1; clearTimeout(timer); } else refresh();
});
by("scope").addEventListener("change", () => { plots.forget(); refresh(); });
by("simple").addEventListener("click", () => graph.view(false));
by("all-nodes").addEventListener("click", () => graph.view(true));
by("task-filter").addEventListener("input", showTasks);
by("all-tasks").addEventListener("click", () => { tasks.limit = tasks.limit === FEW_TASKS ? Infinity : FEW_TASKS; showTasks(); });
by("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = by("token").value;
  sessionStorage.setItem("streams-token", token);
  refused.clear();
  start();
});

async function start() {
  legend();
  await Promise.all([refresh(), stores.load()]);
}
start();
