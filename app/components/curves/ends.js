// Names at the ends of lines: as much room as they need, moved apart where they would overlap.

const HIGH = 14; // pixels of a name

const roomOf = (names, width) => Math.min(width * 0.32, 10 + 7 * Math.max(0, ...names.map((name) => name.length)));

// Give each of `found` ({ top }, in pixels) a place of its own between `low` and `floor`, near where it would be.
function moveApart(found, floor) {
  found.sort((a, b) => a.top - b.top);
  found.forEach((each, place) => { each.top = Math.max(each.top, (found[place - 1]?.top ?? -HIGH) + HIGH); });
  let below = floor;
  for (const each of [...found].reverse()) { each.top = Math.min(each.top, below - HIGH); below = each.top; }
}
