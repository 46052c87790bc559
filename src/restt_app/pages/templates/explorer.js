// A model page's threshold and explorer: draws what was computed for each row. Text goes in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const by = (id) => document.getElementById(id);
  const BARS = 12;
  const state = { row: 0, output: 0, column: 0 };

  const short = (value, digits = 4) => {
    if (value === null || value === undefined) return "missing";
    if (typeof value === "string") return value;
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e7 || size < 1e-4) {
      const [mantissa, power] = value.toExponential(digits - 1).split("e");
      return `${Number(mantissa)}·10^${Number(power)}`.replaceAll("-", "−");
    }
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 12) }).replace("-", "−");
  };
  const sign = (text, value) => (text === "0" ? "±0" : value < 0 ? text : `+${text}`);
  const shown = (value) => (data.classes ? `${short(100 * value, 3)} %` : short(value));
  const changed = (value) => (data.classes ? `${sign(short(100 * value, 3), value)} points` : sign(short(value, 3), value));
  const element = (tag, attributes = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  };
  const drawn = (tag, attributes = {}, text = null) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text;
    return made;
  };
  const scale = (low, high, start, end) => (value) =>
    high > low ? start + ((value - low) / (high - low)) * (end - start) : (start + end) / 2;
  const cut = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1).trimEnd()}…`);
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  const confusion = () => {
    const at = Number(by("cut").value);
    const [hit, alarm] = [data.confusion.positive, data.confusion.negative].map((counts) => sum(counts.slice(at)));
    const [miss, calm] = [sum(data.confusion.positive) - hit, sum(data.confusion.negative) - alarm];
    const share = (part, whole) => (whole ? `${short((100 * part) / whole, 3)} %` : "–");
    const [no, yes] = data.labels;
    const cell = (count, words) => element("td", {}, element("b", {}, count.toLocaleString("en-US")), element("span", { class: "remark" }, words));
    const head = element("thead", {}, element("tr", {}, element("td"), ...[yes, no].map((name) => element("th", { scope: "col", style: "padding:.5rem .75rem" }, `predicted ${name}`))));
    const body = element("tbody", {},
      element("tr", {}, element("th", { scope: "row" }, `is ${yes}`), cell(hit, "found"), cell(miss, "missed")),
      element("tr", {}, element("th", { scope: "row" }, `is ${no}`), cell(alarm, "false alarm"), cell(calm, "rightly not")));
    by("cut").setAttribute("aria-valuetext", `${at} %`);
    by("confusion").replaceChildren(
      element("div", { class: "scroll" }, element("table", { class: "confusion" }, element("caption", {}, "Held-out rows by true and predicted class"), head, body)),
      element("p", { class: "answer" }, `From ${at} % on: of those predicted ${yes}, ${share(hit, hit + alarm)} are (precision); of those that are, ${share(hit, hit + miss)} are found (recall); ${share(hit + calm, hit + miss + alarm + calm)} of all are right.`));
  };
  if (data.confusion) {
    by("cut").addEventListener("input", confusion);
    confusion();
  }

  // Predictions along a column, from whole steps away from the row's own.
  const curve = (column) => column.steps[state.row][state.output].map((steps) => data.predicted[state.row][state.output] + steps * data.unit);
  const place = (column) => {
    const at = column.at[state.row];
    if (at === null || !column.number) return at ?? 0;
    return column.grid.reduce((best, value, index) => (Math.abs(value - at) < Math.abs(column.grid[best] - at) ? index : best), 0);
  };

  const waterfall = () => {
    const values = data.added[state.row][state.output];
    const ranked = values.map((value, index) => [index, value]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const bars = ranked.slice(0, BARS).map(([index, value]) => [data.names[index], data.values[state.row][index], value]);
    const others = ranked.slice(BARS);
    if (others.length) bars.push([others.length === 1 ? "1 other column" : `${others.length} other columns`, "", sum(others.map((one) => one[1]))]);
    const base = data.base[state.output];
    const levels = [base];
    for (const [, , value] of bars) levels.push(levels.at(-1) + value);
    const x = scale(Math.min(...levels), Math.max(...levels), 0, 100);
    const body = element("tbody");
    const add = (name, value, kind, from, to, text) => body.append(element("tr", {},
      element("th", { scope: "row" }, name, ...(value === "" ? [] : [element("small", {}, value)])),
      element("td", { class: "track" }, element("i", { class: "zero", style: `left:${x(base)}%` }), element("i", { class: `fill ${kind}`, style: `left:${Math.min(x(from), x(to))}%;width:${Math.abs(x(to) - x(from))}%` })),
      element("td", { class: "num" }, text)));
    add("average row", "", "total", base, base, shown(base));
    bars.forEach(([name, value, size], index) => add(name, value, size < 0 ? "down" : "up", levels[index], levels[index + 1], `${size < 0 ? "▼" : "▲"} ${changed(size)}`));
    add("this row", "", "total", levels.at(-1), levels.at(-1), shown(levels.at(-1)));
    const head = element("thead", { class: "visually-hidden" }, element("tr", {}, ...["column", "bar", "adds"].map((name) => element("th", { scope: "col" }, name))));
    by("ex-waterfall").replaceChildren(element("table", { class: "bars" }, element("caption", {}, "What each column adds"), head, body));
  };

  // The what-if chart: a line for numbers, a dot per level for categories; the row's own value is marked.
  const chart = (column, marked = -1) => {
    const name = data.names[column.column];
    const values = curve(column);
    const [left, right, top, bottom] = [64, 428, 26, 200];
    const own = data.predicted[state.row][state.output];
    const [low, high] = [Math.min(...values, own), Math.max(...values, own)];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
    const y = scale(low - room, high + room, bottom, top);
    const at = column.number ? scale(column.grid[0], column.grid.at(-1), left, right) : scale(-0.5, column.grid.length - 0.5, left, right);
    const over = (index) => at(column.number ? column.grid[index] : index);
    const svg = drawn("svg", { class: "chart", viewBox: "0 0 440 246", role: "img", "aria-label": `${name}: predictions of this row from ${shown(low)} to ${shown(high)}` });
    for (const tick of [low, (low + high) / 2, high]) {
      svg.append(drawn("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: "grid" }));
      svg.append(drawn("text", { x: left - 7, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, shown(Number(tick.toPrecision(3)))));
    }
    let edge = -Infinity;
    for (const [value, text] of column.ticks) {
      const wide = 3.4 * Math.min(text.length, 12);
      if (at(value) - wide < edge + 8) continue;
      edge = at(value) + wide;
      svg.append(drawn("text", { x: at(value), y: bottom + 16, class: "tick", "text-anchor": "middle" }, cut(text, 12)));
    }
    svg.append(drawn("text", { x: (left + right) / 2, y: bottom + 36, class: "label", "text-anchor": "middle" }, cut(name, 44)));
    svg.append(drawn("text", { x: 2, y: 12, class: "label" }, cut(`predicted ${data.outputs[state.output]}`, 48)));
    svg.append(drawn("line", { x1: left, x2: right, y1: y(own), y2: y(own), class: "dashed" }));
    if (column.number) svg.append(drawn("path", { d: `M${values.map((value, index) => `${over(index).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`, class: "line s0" }));
    values.forEach((value, index) => svg.append(drawn("circle", {
      cx: over(index), cy: y(value), r: index === marked ? 6 : column.number ? 2.5 : 4, class: index === marked ? "dot ours" : "point",
      "data-tip": `${name} = ${column.texts[index]}: ${shown(value)} (${changed(value - own)})`,
    })));
    const here = column.at[state.row];
    if (here !== null) svg.append(drawn("circle", { cx: at(here), cy: y(own), r: 5, class: "dot", "data-tip": `this row: ${shown(own)}` }));
    return svg;
  };

  const answer = (moved) => {
    const column = data.columns[state.column];
    if (!column) return;
    const index = Number(by("ex-value").value);
    const [name, has] = [data.names[column.column], data.values[state.row][column.column]];
    const [value, own] = [curve(column)[index], data.predicted[state.row][state.output]];
    by("ex-value").setAttribute("aria-valuetext", `${name} = ${moved ? column.texts[index] : has}`);
    by("ex-curve").replaceChildren(chart(column, moved ? index : -1));
    if (!moved) by("ex-answer").textContent = `This row has ${name} = ${has}. Move the value to see what the model would predict.`;
    else by("ex-answer").replaceChildren(`With ${name} = `, element("strong", {}, column.texts[index]), ` instead of ${has}: `, element("strong", {}, shown(value)), ` instead of ${shown(own)} (${changed(value - own)}).`);
  };
  const pick = (index) => {
    state.column = index;
    const column = data.columns[index];
    if (!column) return;
    by("ex-column").value = String(index);
    by("ex-value").max = String(column.grid.length - 1);
    by("ex-value").value = String(place(column));
    answer(false);
  };
  const swing = (column) => Math.max(...curve(column)) - Math.min(...curve(column));
  const strongest = () => data.columns.reduce((best, column, index) => (swing(column) > swing(data.columns[best]) ? index : best), 0);

  const best = (row) => data.predicted[row].reduce((most, value, index, all) => (value > all[most] ? index : most), 0);
  const named = (row) => (data.outputs.length === 1 ? data.labels[Number(data.predicted[row][0] >= 0.5)] : data.labels[best(row)]);
  const facts = () => {
    const { row, output } = state;
    const fact = (name, value, remark = "") => {
      const inside = element("dd", {}, value);
      if (remark) inside.append(element("small", {}, remark));
      return element("div", { class: "tile" }, element("dt", {}, name), inside);
    };
    const list = element("dl", { class: "tiles" });
    const interval = data.interval?.[row];
    if (data.classes) list.append(fact(`predicted ${data.target}`, named(row)));
    list.append(fact(data.classes ? `probability of ${data.outputs[output]}` : `predicted ${data.outputs[output]}`, shown(data.predicted[row][output]), interval ? `${short(interval[0])} to ${short(interval[1])} holds ${Math.round(100 * data.coverage)} %` : ""));
    if (data.observed) {
      const seen = data.observed[row];
      const off = !data.classes && typeof seen === "number" && data.outputs.length === 1 ? `error ${changed(data.predicted[row][output] - seen)}` : "";
      list.append(fact("observed", short(seen), off));
    }
    list.append(fact("average row", shown(data.base[output])));
    by("ex-facts").replaceChildren(list);
  };

  const refresh = () => {
    by("ex-row").value = String(state.row);
    by("ex-output").value = String(state.output);
    facts();
    waterfall();
    pick(strongest());
  };
  const go = (row) => {
    state.row = (row + data.row.length) % data.row.length;
    if (data.classes && data.outputs.length > 1) state.output = best(state.row);
    refresh();
  };
  const extreme = (score) => data.row.reduce((most, _, index) => (score(index) > score(most) ? index : most), 0);

  data.row.forEach((number, index) => {
    const seen = data.observed ? `, observed ${short(data.observed[index])}` : "";
    const said = data.classes ? named(index) : shown(data.predicted[index][0]);
    by("ex-row").append(element("option", { value: index }, `row ${number}: predicted ${said}${seen}`));
  });
  data.outputs.forEach((name, index) => by("ex-output").append(element("option", { value: index }, name)));
  by("ex-output-label").hidden = data.outputs.length < 2;
  data.columns.forEach((column, index) => by("ex-column").append(element("option", { value: index }, data.names[column.column])));
  by("ex-row").addEventListener("change", (event) => go(Number(event.target.value)));
  by("ex-output").addEventListener("change", (event) => { state.output = Number(event.target.value); refresh(); });
  by("ex-column").addEventListener("change", (event) => pick(Number(event.target.value)));
  by("ex-value").addEventListener("input", () => answer(true));
  by("ex-previous").addEventListener("click", () => go(state.row - 1));
  by("ex-next").addEventListener("click", () => go(state.row + 1));
  by("ex-highest").addEventListener("click", () => { const { output } = state; go(extreme((row) => data.predicted[row][output])); });
  by("ex-lowest").addEventListener("click", () => { const { output } = state; go(extreme((row) => -data.predicted[row][output])); });
  const numeric = data.observed && !data.classes && data.outputs.length === 1 && data.observed.some((value) => typeof value === "number");
  by("ex-surprise").hidden = !numeric;
  by("ex-surprise").addEventListener("click", () => go(extreme((row) => Math.abs((data.observed[row] ?? data.predicted[row][0]) - data.predicted[row][0]))));
  go(0);
})();
