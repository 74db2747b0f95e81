// A table of numbers: { show(rows) }. A cell is a text, or a list of the text, its class and what it means.

function table(parent, caption, head) {
  const body = el("tbody");
  const top = el("thead", {}, el("tr", {}, ...head.map((words) => el("th", { scope: "col" }, words))));
  const node = el("div", { class: "rl-f-scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", { class: "rl-f-table" }, top, body));
  parent.append(node);
  const cell = (content, place) => {
    const [words, kind = "", title = ""] = [content].flat();
    return el(place ? "td" : "th", { ...(place ? {} : { scope: "row" }), class: kind, title }, words);
  };
  return { node, show: (rows) => body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map(cell)))) };
}
