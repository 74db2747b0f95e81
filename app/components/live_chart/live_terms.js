// The chart of the equation's term that is looked at stands out: whoever shows the equation sends "rl-term"
// ({ panel, knob }; null when no term is looked at).

document.addEventListener("rl-term", ({ detail }) => {
  document.querySelectorAll(".rl-live-chart figure").forEach((box) =>
    box.toggleAttribute("data-lit", Boolean(detail?.panel) && box.dataset.panel === detail.panel));
});
