// Loads plotly.js once for all charts of a page. Served as one with the charts that use it.
//
// Streamlit's own charts put another Plotly into `window` when they are loaded: a chart must stay with the one that
// drew it, or it loses its listeners and its zoom.

let Plotly = null;
export async function loadPlotly(url) {
  window.labPlotly ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { window.labPlotly = null; reject(new Error(`Could not load ${url}`)); };
    document.head.appendChild(script);
  });
  return Plotly ??= await window.labPlotly;
}
