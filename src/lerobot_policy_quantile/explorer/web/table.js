// The table of episodes: filter, order, rates of what is left, and only as many rows in the page as can be seen.
import { wilson } from "./numbers.js";
import { loadSummaries, placeOf } from "./source.js";

const ROW = 26;
const NUMBERED = ["task", "index", "seed"];
const COLUMNS = [
  ["scene", "scene"], ["task", "task"], ["index", "index"], ["seed", "seed"], ["policy", "policy"],
  ["decoder", "decoder"], ["status", "outcome"], ["steps", "steps"], ["spread", "spread"], ["alarm", "alarm"],
];
const SUMMARISED = ["spread", "alarm"];
const AT_ONCE = 50;
const MOST_GROUPS = 12;

/** An element with text; text is never read as markup. */
export function element(name, text = "", className = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

export class EpisodeTable {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.rows = [];
    this.shown = [];
    this.order = { by: "scene", down: false };
    this.chosen = null;
    this.asking = false;
    this.box = document.getElementById("table");
    this.body = document.getElementById("rows");
    this.makeHead();
    this.box.addEventListener("scroll", () => this.draw());
    addEventListener("resize", () => this.draw());
    for (const id of ["words", "scene", "policy", "decoder", "status"]) {
      document.getElementById(id).addEventListener("input", () => this.refilter());
    }
  }

  makeHead() {
    const head = document.getElementById("head");
    for (const [by, label] of COLUMNS) {
      const cell = element("span"), button = element("button", label);
      cell.setAttribute("role", "columnheader");
      button.type = "button";
      button.addEventListener("click", () => this.sortBy(by));
      cell.append(button);
      head.append(cell);
    }
  }

  setRows(rows) {
    const known = new Map(this.rows.map((row) => [placeOf(row), row]));
    this.rows = rows.map((row) => Object.assign(row, summaryIn(known.get(placeOf(row)))));
    for (const name of ["scene", "policy", "decoder", "status"]) fillChoice(name, rows);
    this.refilter();
  }

  sortBy(by) {
    this.order = { by, down: this.order.by === by && !this.order.down };
    if (SUMMARISED.includes(by)) this.summarise(this.shown);
    this.refilter();
  }

  refilter() {
    const keep = wanted();
    this.shown = this.rows.filter(keep);
    const { by, down } = this.order, sign = down ? -1 : 1;
    this.shown.sort((a, b) => sign * compared(a[by], b[by]) || a.place - b.place);
    document.getElementById("filler").style.height = `${this.shown.length * ROW}px`;
    this.drawRates();
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 5);
    const visible = this.shown.slice(first, first + Math.ceil(this.box.clientHeight / ROW) + 10);
    for (const old of this.body.querySelectorAll(".row")) old.remove();
    this.body.append(...visible.map((row, i) => this.rowElement(row, first + i)));
    if (!this.asking) this.summarise(visible);
  }

  rowElement(row, number) {
    const line = element("div", "", row === this.chosen ? "row chosen" : "row");
    line.setAttribute("role", "row");
    line.style.top = `${number * ROW}px`;
    line.title = `${row.policy}, ${row.decoder}`;
    for (const [by] of COLUMNS) {
      const cell = element("span", cellText(row, by), by === "status" ? row.status : "");
      cell.setAttribute("role", "cell");
      line.append(cell);
    }
    line.addEventListener("click", () => this.onOpen(row));
    return line;
  }

  choose(row) {
    this.chosen = row;
    const number = this.shown.indexOf(row);
    if (number >= 0) {
      const top = number * ROW, height = this.box.clientHeight - 2 * ROW;
      if (top < this.box.scrollTop || top > this.box.scrollTop + height) this.box.scrollTop = top - height / 2;
    }
    this.draw();
  }

  /** The row so many places further in the filter; with `only`, among those with that outcome. */
  neighbour(way, only = null) {
    const from = this.shown.indexOf(this.chosen);
    for (let i = from + way; i >= 0 && i < this.shown.length; i += way) {
      if (only === null || this.shown[i].status === only) return this.shown[i];
    }
    return null;
  }

  drawRates() {
    const groups = new Map();
    for (const row of this.shown) {
      const name = `${row.policy}, ${row.decoder}`;
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    const lines = [["all in the filter", this.shown], ...[...groups].slice(0, MOST_GROUPS)];
    const box = document.getElementById("rates");
    box.replaceChildren(...lines.map(([name, rows]) => rateLine(name, rows)));
    if (groups.size > MOST_GROUPS) box.append(element("div", `and ${groups.size - MOST_GROUPS} more`));
  }

  /** Ask for what side files tell of some rows, a few at a time, one request after the other. */
  async summarise(rows) {
    const asked = rows.filter((row) => row.spread === undefined);
    if (!asked.length || this.asking) return;
    this.asking = true;
    try {
      for (let i = 0; i < asked.length; i += AT_ONCE) {
        const few = asked.slice(i, i + AT_ONCE), found = await loadSummaries(few.map(placeOf));
        for (const row of few) Object.assign(row, summaryIn(found[placeOf(row)] ?? {}));
        if (SUMMARISED.includes(this.order.by)) this.refilter(); else this.draw();
      }
    } finally {
      this.asking = false;
    }
    this.draw();
  }
}

function summaryIn(found) {
  return found && found.spread !== undefined ? { spread: found.spread, alarm: found.alarm } : {};
}

function rateLine(name, rows) {
  const judged = rows.filter((row) => row.status !== "error");
  const won = judged.filter((row) => row.status === "success").length, errors = rows.length - judged.length;
  const line = element("div");
  let text = "no result";
  if (judged.length) {
    const [low, high] = wilson(won, judged.length).map((x) => (100 * x).toFixed(0));
    text = `${won} of ${judged.length}, ${(100 * won / judged.length).toFixed(1)} % (${low} to ${high})`;
  }
  line.append(element("span", name), element("span", errors ? `${text}, ${errors} errors` : text));
  return line;
}

function fillChoice(name, rows) {
  const select = document.getElementById(name), before = select.value;
  const found = [...new Set(rows.map((row) => row[name]))].sort();
  const title = name === "status" ? "every outcome" : `every ${name}`;
  select.replaceChildren(new Option(title, ""), ...found.map((value) => new Option(value, value)));
  select.value = found.includes(before) ? before : "";
}

/** A function that says whether a row passes the filter. */
function wanted() {
  const chosen = ["scene", "policy", "decoder", "status"].map((id) => [id, document.getElementById(id).value]);
  const words = document.getElementById("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) => chosen.every(([id, value]) => value === "" || row[id] === value)
    && words.every((word) => matches(row, word));
}

function matches(row, word) {
  const [name, value] = word.split("=");
  if (NUMBERED.includes(name) && value !== undefined) return String(row[name]) === value;
  return row.text.includes(word);
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === undefined || a === null) return 1;
  if (b === undefined || b === null) return -1;
  return a < b ? -1 : 1;
}

function cellText(row, by) {
  if (by === "spread") return row.spread === undefined ? "…" : row.spread === null ? "–" : row.spread.toPrecision(3);
  if (by === "alarm") return row.alarm === undefined ? "…" : row.alarm === null ? "–" : `at ${row.alarm}`;
  return String(row[by]);
}
