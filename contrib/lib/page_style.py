# SPDX-License-Identifier: GPL-2.0-or-later
"""How the page of contrib/lib/make_page.py looks, on light and on dark screens."""

_LIGHT = {"back": "#fcfcfb", "ink": "#1a1a19", "faint": "#63625e", "line": "#d9d8d4", "idle": "#efeeea", "rigid": "#a3a29c", "stood": "#d03b3b",
          "job0": "#2a78d6", "job1": "#d9611c", "job2": "#12835a", "job3": "#7a4fc4", "job4": "#a97a00", "job5": "#b03a78"}
_DARK = {"back": "#1a1a19", "ink": "#f2f1ed", "faint": "#a9a8a2", "line": "#3d3c39", "idle": "#2a2927", "rigid": "#77766f", "stood": "#f0706b",
         "job0": "#5b9df0", "job1": "#f08a4b", "job2": "#3fb489", "job3": "#a98af0", "job4": "#d1a53a", "job5": "#e07ab0"}


def _variables(colours):
    return "".join(f"--{name}:{value};" for name, value in colours.items())


_JOBS = "".join(f".job{n}{{fill:var(--job{n})}} .line{n}{{stroke:var(--job{n});fill:none}} .legend .own{n}{{background:var(--job{n})}}\n" for n in range(6))

STYLE = f"""
:root {{ color-scheme: light dark; {_variables(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 1110px; color: var(--ink); background: var(--back); }}
h1 {{ font-size: 1.6em; margin-bottom: .2em; }} h2 {{ font-size: 1.15em; margin: 2em 0 .4em; }}
p {{ max-width: 80ch; color: var(--faint); margin: .3em 0 .8em; }}
svg {{ width: 100%; height: auto; display: block; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: .8em; margin: 1em 0; }}
.tile {{ flex: 1 1 9em; border: 1px solid var(--line); border-radius: 6px; padding: .6em .8em; color: var(--faint); font-size: .85em; }}
.tile b {{ display: block; font-size: 1.7em; color: var(--ink); font-weight: 600; }}
.legend {{ max-width: none; }} .legend span {{ margin-right: 1.4em; white-space: nowrap; }}
.legend i {{ display: inline-block; width: .9em; height: .9em; margin-right: .4em; vertical-align: -.1em; background: var(--rigid); }}
.legend .striped {{ background: repeating-linear-gradient(-45deg, var(--faint) 0 2px, transparent 2px 5px); }} .legend .stood {{ background: var(--stood); height: .6em; }}
.panels {{ display: flex; flex-wrap: wrap; gap: 1em; }} figure {{ margin: 0; flex: 1 1 320px; max-width: 360px; }} figure p {{ font-size: .85em; }}
.label {{ font: 11px system-ui, sans-serif; fill: var(--faint); }} .strong {{ fill: var(--ink); font-weight: 600; }}
.idle {{ fill: var(--idle); }} .rigid {{ fill: var(--rigid); }} .pause {{ fill: var(--stood); }}
line.note {{ stroke: var(--faint); stroke-dasharray: 2 3; }} .tick, .axis {{ stroke: var(--faint); }} .grid {{ stroke: var(--line); }}
.resize {{ stroke: var(--faint); stroke-dasharray: 2 3; }}
.loss {{ stroke-width: 2; }} .unresized {{ stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }}
.ideal {{ stroke: var(--faint); stroke-dasharray: 1 4; fill: none; }} .predicted {{ stroke-width: 1.5; }} .ring {{ stroke-width: 1.5; }} .real {{ stroke: var(--back); }}
{_JOBS}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; font-size: .88em; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25em 1.2em .25em 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }} th {{ color: var(--faint); font-weight: 500; }}
"""
