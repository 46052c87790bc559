// The explorer of a model page: draws what was computed for each row. Text goes in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const by = (id) => document.getElementById(id);
  const BARS = 12;
  const MINIS = 6;
  const ORDER_NAMES = ["", "single columns", "pairs", "triples"];
  const state = { row: 0, output: 0, column: 0, all: false };

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
    const text = value.toLocaleString("en-US", { maximumFractionDigits: Math.min(decimals, 12) });
    return text.replace("-", "−");
  };
  const signed = (value, digits = 3) => {
    const text = short(value, digits);
    return text === "0" ? "±0" : value < 0 ? text : `+${text}`;
  };
  const shown = (value) => (data.classes ? `${short(100 * value, 3)} %` : short(value));
  const changed = (value) => (data.classes ? `${signed(100 * value, 3)} points` : signed(value));
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
  const canvas = (width, height, label) =>
    drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const scale = (low, high, start, end) => (value) =>
    high > low ? start + ((value - low) / (high - low)) * (end - start) : (start + end) / 2;
  const cut = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1).trimEnd()}…`);
  const ticks = (low, high, count) => {
    if (!(high > low)) return [low];
    const rough = (high - low) / count;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough * 0.7);
    const found = [];
    for (let place = Math.ceil(low / step - 1e-9); place <= high / step + 1e-9; place += 1) found.push(place * step);
    return found;
  };

  // Predictions along a column, from whole steps away from the row's own.
  const curve = (column, row = state.row, output = state.output) =>
    column.steps[row][output].map((steps) => data.predicted[row][output] + steps * data.unit);
  const place = (column) => {
    const at = column.at[state.row];
    if (at === null) return -1;
    if (!column.number) return at;
    return column.grid.reduce((best, value, index) => (Math.abs(value - at) < Math.abs(column.grid[best] - at) ? index : best), 0);
  };
  const swing = (column) => {
    const found = curve(column);
    return Math.max(...found) - Math.min(...found);
  };

  const waterfall = () => {
    const values = data.shapley[state.row][state.output];
    const ranked = values.map((value, index) => [index, value]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const bars = ranked.slice(0, BARS).map(([index, value]) => [`${data.names[index]} = ${data.values[state.row][index]}`, value]);
    if (ranked.length > BARS) {
      bars.push([ranked.length - BARS === 1 ? "1 other column" : `${ranked.length - BARS} other columns`, ranked.slice(BARS).reduce((sum, one) => sum + one[1], 0)]);
    }
    const base = data.base[state.output];
    const end = data.decision[state.row][state.output];
    const levels = [base];
    for (const [, value] of bars) levels.push(levels.at(-1) + value);
    const [left, right, top, row] = [178, 356, 26, 26];
    const bottom = top + row * bars.length;
    const x = scale(Math.min(...levels), Math.max(...levels), left, right);
    const svg = canvas(440, bottom + 30, `From the average row, ${shown(base)}, to this one, ${shown(end)}: ${bars.map(([name, value]) => `${name} ${changed(value)}`).join(", ")}`);
    svg.append(drawn("line", { x1: x(base), x2: x(base), y1: top - 4, y2: bottom, class: "dashed" }));
    svg.append(drawn("text", { x: x(base), y: top - 10, class: "tick", "text-anchor": "middle" }, `average ${shown(base)}`));
    bars.forEach(([name, value], index) => {
      const y = top + row * index;
      const [low, high] = [levels[index], levels[index + 1]].map(x).sort((a, b) => a - b);
      svg.append(drawn("text", { x: left - 10, y: y + 17, class: "name", "text-anchor": "end" }, cut(name, 25)));
      svg.append(drawn("rect", { x: low, y: y + 4, width: Math.max(1.5, high - low), height: row - 8, rx: 3, class: `bar ${value >= 0 ? "up" : "down"}`, "data-tip": `${name}: ${signed(value)}` }));
      svg.append(drawn("text", { x: 438, y: y + 17, class: "value", "text-anchor": "end" }, `${value >= 0 ? "▲" : "▼"} ${signed(value)}`));
    });
    svg.append(drawn("line", { x1: x(end), x2: x(end), y1: top, y2: bottom + 6, class: "axis" }));
    svg.append(drawn("text", { x: x(end), y: bottom + 22, class: "value ours", "text-anchor": "middle" }, `this row ${shown(end)}`));
    by("ex-waterfall").replaceChildren(svg);
    const body = element("tbody");
    for (const [index, value] of ranked) {
      body.append(element("tr", {}, element("th", { scope: "row" }, data.names[index]), element("td", {}, data.values[state.row][index]), element("td", { class: "num" }, signed(value))));
    }
    const head = element("thead", {}, element("tr", {}, ...["column", "value", data.method].map((name, index) => {
      const heading = element("th", { scope: "col", style: "padding:.5rem .75rem" }, name);
      if (index === 2) heading.className = "num";
      return heading;
    })));
    by("ex-shapley").replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${data.method} of this row` }, element("table", {}, element("caption", {}, `${data.method} of this row`), head, body)));
    by("ex-waterfall-hint").textContent =
      `${data.method} in ${data.classes ? "probability" : `units of ${data.scale}`}: they sum to the difference between this row and the average row.`;
  };

  const orders = () => {
    const values = data.orders[state.row][state.output].slice(1);
    const last = Math.max(2, values.reduce((kept, value, index) => (Math.abs(value) > 1e-4 * Math.max(...values.map(Math.abs)) ? index : kept), 0) + 1);
    const bars = values.slice(0, last);
    const [left, right, top, row] = [146, 366, 6, 28];
    const bottom = top + row * bars.length;
    const x = scale(Math.min(0, ...bars), Math.max(0, ...bars), left, right);
    const svg = canvas(440, bottom + 8, `By order: ${bars.map((value, index) => `order ${index + 1} ${signed(value)}`).join(", ")}`);
    svg.append(drawn("line", { x1: x(0), x2: x(0), y1: top, y2: bottom, class: "axis" }));
    bars.forEach((value, index) => {
      const y = top + row * index;
      const [low, high] = [x(0), x(value)].sort((a, b) => a - b);
      svg.append(drawn("text", { x: left - 10, y: y + 18, class: "name", "text-anchor": "end" }, `${index + 1} · ${ORDER_NAMES[index + 1] ?? "larger"}`));
      svg.append(drawn("rect", { x: low, y: y + 5, width: Math.max(1.5, high - low), height: row - 10, rx: 3, class: `bar ${value >= 0 ? "up" : "down"}`, "data-tip": `order ${index + 1}: ${signed(value)}` }));
      svg.append(drawn("text", { x: Math.max(high, x(0)) + 6, y: y + 18, class: "value" }, `${value >= 0 ? "▲" : "▼"} ${signed(value)}`));
    });
    by("ex-orders").replaceChildren(svg);
  };

  // One what-if chart: a line for numbers, a dot per level for categories; the row's own value is marked.
  const chart = (column, size, marked = -1) => {
    const name = data.names[column.column];
    const values = curve(column);
    const large = size === "large";
    const [width, height] = large ? [440, 250] : [280, 120];
    const [left, right, top, bottom] = large ? [58, 428, 26, 200] : [8, 272, 12, 104];
    const own = data.predicted[state.row][state.output];
    const [low, high] = [Math.min(...values, own), Math.max(...values, own)];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
    const y = scale(low - room, high + room, bottom, top);
    const at = column.number ? scale(column.grid[0], column.grid.at(-1), left, right) : scale(-0.5, column.grid.length - 0.5, left, right);
    const over = (index) => at(column.number ? column.grid[index] : index);
    const svg = canvas(width, height, `${name}: predictions of this row from ${shown(low)} to ${shown(high)}`);
    if (large) {
      for (const tick of ticks(low - room, high + room, 4)) {
        svg.append(drawn("line", { x1: left, x2: right, y1: y(tick), y2: y(tick), class: "grid" }));
        svg.append(drawn("text", { x: left - 7, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, shown(tick)));
      }
      const across = column.number ? ticks(column.grid[0], column.grid.at(-1), 5) : column.grid.map((_, index) => index);
      across.forEach((tick, index) => {
        if (!column.number && index % Math.ceil(across.length / 7)) return;
        svg.append(drawn("text", { x: at(tick), y: bottom + 16, class: "tick", "text-anchor": "middle" }, column.number ? short(tick) : cut(column.grid[tick], 9)));
      });
      svg.append(drawn("text", { x: (left + right) / 2, y: bottom + 36, class: "label", "text-anchor": "middle" }, cut(name, 44)));
      svg.append(drawn("text", { x: 2, y: 12, class: "label" }, cut(`predicted ${data.outputs[state.output]}`, 48)));
    }
    svg.append(drawn("line", { x1: left, x2: right, y1: y(own), y2: y(own), class: "dashed" }));
    if (column.number) svg.append(drawn("path", { d: `M${values.map((value, index) => `${over(index).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`, class: "line s0" }));
    values.forEach((value, index) => {
      const dot = { cx: over(index), cy: y(value), r: index === marked ? 6 : column.number ? (large ? 2.5 : 0) : 4, class: index === marked ? "dot ours" : "point", "data-tip": `${name} = ${short(column.grid[index])}: ${shown(value)} (${changed(value - own)})` };
      if (dot.r) svg.append(drawn("circle", dot));
    });
    const here = column.at[state.row];
    if (here !== null) svg.append(drawn("circle", { cx: at(here), cy: y(own), r: large ? 5 : 4, class: "dot", "data-tip": `this row: ${shown(own)}` }));
    return svg;
  };

  // Before the value is moved there is nothing to answer.
  const answer = (moved) => {
    const column = data.columns[state.column];
    if (!column) return;
    const index = Number(by("ex-value").value);
    const name = data.names[column.column];
    if (!moved) {
      by("ex-value").setAttribute("aria-valuetext", `${name} = ${data.values[state.row][column.column]}`);
      by("ex-answer").textContent = `This row has ${name} = ${data.values[state.row][column.column]}. Move the value to see what the model would say.`;
      by("ex-curve").replaceChildren(chart(column, "large"));
      return;
    }
    const value = curve(column)[index];
    const own = data.predicted[state.row][state.output];
    by("ex-value").setAttribute("aria-valuetext", `${name} = ${short(column.grid[index])}`);
    by("ex-answer").replaceChildren(
      `With ${name} = `, element("strong", {}, short(column.grid[index])),
      ` instead of ${data.values[state.row][column.column]}: `, element("strong", {}, shown(value)),
      ` instead of ${shown(own)} (${changed(value - own)}).`,
    );
    by("ex-curve").replaceChildren(chart(column, "large", index));
  };

  const pick = (index) => {
    state.column = index;
    const column = data.columns[index];
    if (!column) return;
    by("ex-column").value = String(index);
    by("ex-value").max = String(column.grid.length - 1);
    by("ex-value").value = String(Math.max(0, place(column)));
    for (const button of by("ex-minis").children) button.setAttribute("aria-pressed", String(Number(button.dataset.column) === index));
    answer(false);
  };

  const minis = () => {
    const ranked = data.columns.map((column, index) => [index, swing(column)]).sort((a, b) => b[1] - a[1]);
    const kept = state.all ? ranked : ranked.slice(0, MINIS);
    by("ex-minis").replaceChildren(...kept.map(([index, range]) => {
      const column = data.columns[index];
      const title = element("span", { class: "mini-title" }, element("b", {}, data.names[column.column]), element("span", {}, `by up to ${data.classes ? `${short(100 * range, 3)} points` : short(range, 3)}`));
      const button = element("button", { class: "mini", type: "button", "data-column": index }, title, chart(column, "small"));
      button.addEventListener("click", () => pick(index));
      return button;
    }));
    by("ex-all").hidden = data.columns.length <= MINIS;
    return ranked.length ? ranked[0][0] : 0;
  };

  const fact = (name, value, remark = "") => {
    const inside = element("dd", {}, value);
    if (remark) inside.append(element("small", {}, remark));
    return element("div", { class: "tile" }, element("dt", {}, name), inside);
  };
  const facts = () => {
    const { row, output } = state;
    const list = element("dl", { class: "tiles" });
    const interval = data.interval?.[row];
    list.append(fact(data.classes ? `probability of ${data.outputs[output]}` : `predicted ${data.outputs[output]}`, shown(data.predicted[row][output]), interval ? `${short(interval[0])} to ${short(interval[1])} holds ${Math.round(100 * data.coverage)} %` : ""));
    if (data.observed) {
      const seen = data.observed[row];
      const off = !data.classes && typeof seen === "number" && data.outputs.length === 1 ? `error ${signed(data.predicted[row][output] - seen)}` : "";
      list.append(fact("observed", short(seen), off));
    }
    list.append(fact(`average row${data.same ? "" : `, ${data.scale}`}`, shown(data.base[output])));
    by("ex-facts").replaceChildren(list);
  };

  const refresh = (keep = false) => {
    by("ex-row").value = String(state.row);
    facts();
    waterfall();
    orders();
    const strongest = minis();
    pick(keep ? state.column : strongest);
  };
  const go = (row) => {
    state.row = (row + data.row.length) % data.row.length;
    refresh();
  };
  const extreme = (score) => data.row.reduce((best, _, index) => (score(index) > score(best) ? index : best), 0);

  data.row.forEach((number, index) => {
    const seen = data.observed ? `, observed ${short(data.observed[index])}` : "";
    const said = data.classes && data.outputs.length > 1 ? "" : `: predicted ${shown(data.predicted[index][0])}`;
    by("ex-row").append(element("option", { value: index }, `row ${number}${said}${seen}`));
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
  by("ex-highest").addEventListener("click", () => go(extreme((row) => data.predicted[row][state.output])));
  by("ex-lowest").addEventListener("click", () => go(extreme((row) => -data.predicted[row][state.output])));
  by("ex-all").addEventListener("click", () => {
    state.all = !state.all;
    by("ex-all").textContent = state.all ? "Show fewer columns" : "Show all columns";
    by("ex-all").setAttribute("aria-expanded", String(state.all));
    minis();
    pick(state.column);
  });
  const numeric = data.observed && !data.classes && data.outputs.length === 1 && data.observed.some((value) => typeof value === "number");
  by("ex-surprise").hidden = !numeric;
  by("ex-surprise").addEventListener("click", () => go(extreme((row) => Math.abs((data.observed[row] ?? data.predicted[row][0]) - data.predicted[row][0]))));
  refresh();
})();
