"""Monte Carlo: means of samples, and how far to trust them."""

from __future__ import annotations

from app.components.foundations import MONTE_CARLO
from app.foundations.section import Return, Section

SECTION = Section(
    key="monte_carlo",
    title="Monte Carlo",
    sentence="The mean of random samples comes ever closer to the true mean, but slowly: to halve the error you need "
             "four times the samples.",
    latex=r"\begin{gathered} \bar x_n = \frac1n\sum_{i=1}^n x_i \\ \bar x_n \pm 1.96\,\frac{s}{\sqrt n} \qquad "
          r"\text{error} = \frac{\sigma}{\sqrt n} \end{gathered}",
    symbols=(
        ("x_i", "sample number $i$, drawn independently of the others."),
        (r"\bar x_n", "the mean of the first $n$ samples: an *estimate* of the true mean, the dashed line."),
        (r"\sigma", "the true standard deviation of one sample: the root of the mean squared distance from the true "
                    "mean. $\\sigma^2$ is the variance. A mean of $n$ samples is typically off by $\\sigma/\\sqrt n$."),
        ("s", "the same, estimated from the samples. In practice it is all you have."),
        (r"\pm 1.96\,s/\sqrt n", "the 95 % interval: of many such intervals about 95 in 100 hold the true mean, if $n$ "
                                 "is large enough for the samples at hand."),
        (r"\text{slope}", "on log–log axes, $1/\\sqrt n = n^{-1/2}$ is a straight line with slope "
                          "$-1/2$."),
    ),
    tries=(
        "Drag the end of the line to the right: the interval closes in on the truth.",
        "**Rare event**: with few samples the event never occurs, the mean is 0 and the interval has no width. A "
        "reward "
        "that is almost never earned looks like this to a learner.",
        "**Heavy tail**: the error does not fall as $1/\\sqrt n$, because one sample can outweigh all others.",
    ),
    returns=(
        Return("Monte Carlo in the maze: means of what whole episodes earned", "maze", {"algorithm": "monte_carlo"}),
        Return("How sure is a comparison? Intervals over seeds", "compare"),
    ),
    picture=MONTE_CARLO,
)
