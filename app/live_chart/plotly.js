// Loads plotly.js once, whoever asks. Served as one with the charts that use it.

let plotly = null;
function loadPlotly(url) {
  plotly ??= window.Plotly ? Promise.resolve(window.Plotly) : new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { plotly = null; reject(new Error(`Could not load ${url}`)); };
    document.head.appendChild(script);
  });
  return plotly;
}
