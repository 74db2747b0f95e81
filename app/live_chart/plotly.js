// Loads plotly.js once, whoever asks. Served as one with the charts that use it.
//
// Streamlit's own charts put another Plotly into `window` when they are loaded: a chart must stay with the one that
// drew it, or it loses its listeners and its zoom.

let Plotly = null;
let loading = null;
function loadPlotly(url) {
  loading ??= window.Plotly ? Promise.resolve() : new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI);
    script.onload = resolve;
    script.onerror = () => { loading = null; reject(new Error(`Could not load ${url}`)); };
    document.head.appendChild(script);
  });
  return loading.then(() => { Plotly ??= window.Plotly; return Plotly; });
}
