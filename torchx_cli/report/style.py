"""The style sheet of the page: light, dark and on paper."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2024; --soft: #5c6570; --rule: #d8dde3;
  --box: #f4f6f8;
  --good: #1a7f37; --bad: #c62828; --wait: #8a6100; --main: #2463b5; --band: #2463b533;
  --c0: #2463b5; --c1: #c4530b; --c2: #1a7f37; --c3: #8b3fb5; --c4: #b0246b; --c5: #0e7c86; --c6: #7a6000;
  --c7: #5b6470; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e3e6ea; --soft: #9aa4af;
  --rule: #343a42;
  --box: #1f2329; --good: #56c271; --bad: #ff7b72; --wait: #d9a520; --main: #6cb0ff; --band: #6cb0ff33;
  --c0: #6cb0ff;
  --c1: #ff9d5c; --c2: #56c271; --c3: #c99cff; --c4: #ff8ac0; --c5: #4fd0d8; --c6: #d8c04a; --c7: #a8b2bd;
  } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.5rem 1rem 3rem; background: var(--back);
  color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--rule); }
p { margin: .4rem 0; overflow-wrap: anywhere; }
p:empty, dl:empty, .plots:empty { display: none; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--box); border: 1px solid var(--rule); border-radius: 6px; padding: .7rem;
  margin: .5rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 16rem; overflow-y: auto; display: flex;
  flex-direction: column-reverse; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.state { font-weight: 600; }
.good, .succeeded.state, .running.state { color: var(--good); }
.bad, .failed.state { color: var(--bad); }
.wait, .cancelled.state, .pending.state, .submitted.state { color: var(--wait); }
.soft, .times, .axis, .legend { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
.plots { display: flex; flex-wrap: wrap; gap: 1.2rem 2rem; margin: .5rem 0; }
figure { margin: 0; break-inside: avoid; min-width: 0; flex: 1 1 min(100%, 300px); }
figcaption { font-weight: 600; }
.plot { display: flex; gap: .5rem; height: 130px; }
.axis { display: flex; flex-direction: column; justify-content: space-between; width: 4.6rem;
  text-align: right;
  font-size: 12px; line-height: 1; flex: none; }
.times { display: flex; justify-content: space-between; padding-left: 5.1rem; font-size: 12px; }
.lane .times { padding-left: 0; }
svg { display: block; width: 100%; height: 100%; min-width: 0; overflow: visible; }
svg.row { height: 12px; background: var(--box); }
svg.area { height: 60px; background: var(--box); }
path { fill: none; vector-effect: non-scaling-stroke; stroke-width: 1.5px; }
.grid { stroke: var(--rule); stroke-width: 1px; }
.band { fill: var(--band); stroke: none; }
.middle { stroke: var(--main); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .2rem 0; padding: 0;
  font-size: 13px; }
.key { overflow-wrap: anywhere; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em;
  border-radius: 2px;
  background: currentColor; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .c3 { stroke: var(--c3); }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); } .c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.key.m::before { background: var(--main); }
.key.c0::before { background: var(--c0); } .key.c1::before { background: var(--c1); }
.key.c2::before { background: var(--c2); } .key.c3::before { background: var(--c3); }
.key.c4::before { background: var(--c4); } .key.c5::before { background: var(--c5); }
.key.c6::before { background: var(--c6); } .key.c7::before { background: var(--c7); }
.bar { fill: var(--soft); }
.bar.succeeded, .bar.running { fill: var(--good); } .bar.failed { fill: var(--bad); }
  .bar.cancelled { fill: var(--wait); }
.lanes { display: grid; grid-template-columns: fit-content(12rem) minmax(0, 1fr) fit-content(16rem);
  gap: .25rem .8rem;
  align-items: center; font-size: 14px; overflow-wrap: anywhere; }
.lane { display: grid; gap: .2rem; margin: .6rem 0; }
summary { cursor: pointer; }
@media (max-width: 560px) { .wide { overflow-x: scroll; } .wide th, .wide td { white-space: nowrap; }
  dl { grid-template-columns: minmax(0, 1fr); } dd { margin-bottom: .4rem; }
  .lanes { grid-template-columns: fit-content(6rem) minmax(0, 1fr) fit-content(7rem); gap: .25rem .5rem; } }
@media print { :root { --back: #fff; --text: #000; --soft: #444; --rule: #bbb; --box: #f4f4f4;
  --good: #1a7f37;
  --bad: #b00020; --wait: #7a5600; --main: #2463b5; --band: #2463b533; --c0: #2463b5; --c1: #c4530b;
  --c2: #1a7f37;
  --c3: #8b3fb5; --c4: #b0246b; --c5: #0e7c86; --c6: #7a6000; --c7: #5b6470; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 11pt; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
  h2 { margin-top: 1.2rem; } figure { flex-basis: 200px; } .plot { height: 90px; }
  pre { max-height: none; display: block; } h2, h3 { break-after: avoid; } tr, .lane { break-inside: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""
