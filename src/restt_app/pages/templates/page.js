"use strict";
// What every page can do: sort tables, say what is pointed at, open everything for print, mark where one is.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const show = (event) => {
    const target = event.target.closest?.("[data-tip]");
    tip.classList.toggle("on", Boolean(target));
    if (!target) return;
    tip.textContent = target.dataset.tip;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => tip.classList.remove("on"), { passive: true });

  const key = (row, column) => {
    const cell = row.children[column];
    const value = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(value);
    return value === "" || Number.isNaN(number) ? value : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1; // numbers before text, such as "not measured"
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("th");
      if (!heading) return;
      const column = heading.cellIndex;
      const falls = heading.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => {
        const [one, two] = [key(a, column), key(b, column)];
        const order = compare(one, two);
        return falls && typeof one === typeof two ? -order : order;
      });
      body.append(...rows);
    });
  }

  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) {
      part.open = true;
      part.dataset.closed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const part of document.querySelectorAll("details[data-closed]")) {
      part.open = false;
      delete part.dataset.closed;
    }
  });

  const links = new Map([...document.querySelectorAll("nav.toc a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) seen.observe(section);
  }
})();
