"""Home: what this is, one button, and what is going."""

import streamlit as st

from app import listing
from app.lab import lab

st.html("""
<style>
.rl-hero{padding:2.2rem 0 .4rem;max-width:46rem}
.rl-hero h1{font-size:clamp(1.9rem,4.4vw,2.8rem);line-height:1.12;font-weight:700;
  margin:0;padding:0;letter-spacing:-.02em}
.rl-hero p{font-size:1.1rem;line-height:1.5;margin:.8rem 0 0;opacity:.85}
.rl-loop{display:grid;grid-template-columns:repeat(4,minmax(0,1fr));gap:14px;margin:1.2rem 0 .4rem}
.rl-loop div{border-top:3px solid var(--c);padding:.6rem .2rem 0;font-size:15px;line-height:1.45}
.rl-loop b{display:block;font-size:1.05rem}.rl-loop .rl-mono{opacity:.85}
@media (max-width:640px){.rl-hero{padding-top:.8rem}.rl-loop{grid-template-columns:repeat(2,minmax(0,1fr))}}
</style>
<div class="rl-hero"><h1>Watch a language model learn by reinforcement</h1>
<p>A small transformer learns on your own machine, live. Move a knob while it runs, and see which token, which group and
which term of the equation made the curve turn.</p></div>""")
with st.container(horizontal=True, vertical_alignment="center"):
    if st.button("Open the LLM lab", type="primary", icon=":material/play_arrow:", shortcut="Enter"):
        st.switch_page("../pages/llm.py")
    st.page_link("../pages/maze.py", label="Start in a maze", icon=":material/grid_on:")
    st.page_link("../pages/cartpole.py", label="Balance a pole", icon=":material/sports_martial_arts:")
    st.page_link("../pages/runs.py", label="All runs", icon=":material/list:")
st.html("""<div class="rl-loop">
<div style="--c:#0072B2"><b>It answers</b>A group of answers to one prompt.<br>
  <span class="rl-mono">dbcaef= → abcdef</span></div>
<div style="--c:#E69F00"><b>A verifier judges</b>Right or wrong: a reward.<br>
  <span class="rl-mono">1 · 0 · 1 · 0</span></div>
<div style="--c:#009E73"><b>Advantages appear</b>Better or worse than the group.<br>
  <span class="rl-mono">+1 · −1 · +1 · −1</span></div>
<div style="--c:#CC79A7"><b>The policy moves</b>Within a clip and a KL leash.<br>
  <span class="rl-mono">PPO · GRPO · RLOO · DPO</span></div>
</div>""")
listing.resume_banner(lab().store.runs("interrupted"))
listing.going()
