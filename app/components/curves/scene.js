// What the charts of one page share: what is hidden in them, how far they are zoomed, and the colours of their groups.

const scenes = new Map(); // those that several charts share, by name

const newScene = () => ({ hidden: new Set(), zoom: null, charts: new Set() });

function sceneOf(name) {
  if (!scenes.has(name)) scenes.set(name, newScene());
  return scenes.get(name);
}

function enter(chart, scene) {
  chart.scene?.charts.delete(chart);
  chart.scene = scene;
  scene.charts.add(chart);
}

function redraw(scene) {
  scene.charts.forEach((chart) => render(chart, true));
}

// What hides a line: its metric where a chart has several of one run, else its group.
const hiderOf = (line) => line.metric ?? line.group;

function toggle(scene, hider) {
  if (!scene.hidden.delete(hider)) scene.hidden.add(hider);
  redraw(scene);
}

// Show one group alone; the one that is alone already brings all the others back.
function isolate(scene, group, count) {
  const others = [...Array(count).keys()].filter((each) => each !== group);
  const alone = !scene.hidden.has(group) && others.every((each) => scene.hidden.has(each));
  scene.hidden = new Set(alone ? [] : others);
  redraw(scene);
}

const DASH_ARRAYS = { solid: "", dot: "2 3", dash: "6 3", dashdot: "6 2 2 2" };

const colourOf = (chart, index) => chart.groups[index].colour[chart.theme.dark ? 1 : 0];
