// The names of the groups: to click above the charts, and at the ends of their lines.

// A button for each group: a click hides it, a double click isolates it. They stay when a group is hidden: what is
// clicked once must still be there for the second click.
function drawLegend(chart) {
  const made = JSON.stringify([chart.groups, chart.theme.dark]);
  if (chart.legend.dataset.made !== made) {
    chart.legend.dataset.made = made;
    chart.legend.innerHTML = chart.groups.map((group, index) =>
      `<button type="button" title="${escaped(group.label)}: click to hide or show, double-click to see it alone">` +
      `<svg width="22" height="10" aria-hidden="true"><line x1="0" x2="22" y1="5" y2="5" ` +
      `stroke="${colourOf(chart, index)}" stroke-width="${group.bold ? 4 : 2.5}" ` +
      `stroke-dasharray="${DASH_ARRAYS[group.dash]}"/></svg><b>${escaped(group.short)}</b>` +
      `<small>${escaped(group.note)}</small></button>`).join("");
    chart.legend.querySelectorAll("button").forEach((button, index) => {
      button.addEventListener("click", () => toggle(chart.scene, index));
      button.addEventListener("dblclick", () => isolate(chart.scene, index, chart.groups.length));
    });
  }
  chart.legend.querySelectorAll("button").forEach((button, index) => {
    const hidden = chart.scene.hidden.has(index);
    button.classList.toggle("rl-off", hidden);
    button.setAttribute("aria-pressed", String(!hidden));
  });
}

// The names of the groups at the ends of their lines, moved apart where they would overlap.
function drawEnds(chart, panel) {
  panel.ends.replaceChildren();
  if (!panel.room) return;
  const { xaxis, yaxis } = panel.plot._fullLayout;
  const found = [];
  chart.groups.forEach((group, index) => {
    const line = linesOf(panel).find((each) => each.group === index && each.named);
    if (!line || chart.scene.hidden.has(index)) return;
    const [x, y] = [xaxis.c2p(line.x.at(-1)), yaxis.c2p(scaled(panel, line.y.at(-1)))];
    const inside = x >= 0 && x <= xaxis._length + 1 && y >= -1 && y <= yaxis._length + 1;
    if (inside) found.push({ index, left: x + xaxis._offset + 5, top: y + yaxis._offset - 7 });
  });
  moveApart(found, yaxis._offset + yaxis._length);
  const edge = panel.width - panel.room + 6;
  panel.ends.append(...found.map(({ index, left, top }) => {
    const name = document.createElement("span");
    [name.textContent, name.title] = [chart.groups[index].end, chart.groups[index].short];
    Object.assign(name.style, { top: `${panel.plot.offsetTop + top}px`, left: `${Math.min(left, edge)}px`,
      width: `${panel.room - 6}px`,
      color: colourOf(chart, index) });
    return name;
  }));
}
