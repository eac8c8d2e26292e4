#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The page that contrib/quickstart ends with: what a browser draws is what the run's files say, and wrong files are refused in one line.
#   page_test.sh [FOLDER]   also looks at the page of a run of contrib/quickstart, where there is one in FOLDER
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
command -v jq > /dev/null || { printf '1..0 # SKIP no jq here: run contrib/setup\n'; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
given=${1:+$(realpath -m "$1")}
[[ -z $given || -e $given/page.html ]] || { printf '# no run of contrib/quickstart in %s\n' "$given"; given=''; }
cd "$work" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"

# A run of 100 s on two nodes: job 3 has node1, is lent node2 by companion 4 from 20 s to 60 s, when rigid job 5 needs it.
look() { # TIME GPUS JOBS
  printf '{"time": %s, "gpus": {%s}, "jobs": {%s}, "types": {"node1": "h100", "node2": "a100"}}\n' "$1" "$2" "$3"
}
own='"node1:0": 3, "node1:1": 3' lent='"node2:0": 4, "node2:1": 4' rigid='"node2:0": 5, "node2:1": 5'
three='"3": {"name": "gpt & co", "state": "RUNNING", "parent": 0}' four='"4": {"name": "swell-3-lent", "state": "RUNNING", "parent": 3}'
five='"5": {"name": "rigid", "state": "RUNNING", "parent": 0}'
{
  look 1000 '' ''
  look 1005 "$own" "$three"
  look 1020 "$own, $lent" "$three, $four"
  look 1060 "$own, $rigid" "$three, $five"
  look 1090 "$own" "$three"
  look 1100 '' ''
} > gpus.jsonl
companion='"companion": {"id": 4, "node": "node2", "gpus": 2, "gpu_indices": "0-1"}'
cat > events.jsonl << EVENTS
{"time": 1005, "event": "job-started", "job": 3, "basic_gpus": 2}
{"time": 1006, "event": "status", "job": 3, "state": "ACTIVE", "generation": 0, "workers": 2, "stopped_s": 0}
{"time": 1019, "event": "grant", "job": 3, "node": "node2", "gpus": 2, "reason": "1.90 times as fast is predicted, by 4L dp4"}
{"time": 1020, "event": "companion-started", "job": 3, $companion, "reason": ""}
{"time": 1030.6, "event": "pause", "job": 3, "mode": "live", "stopped_s": 0.4, "workers": 4, "parts": {"move_s": 0.1, "bytes": {"tcp": 2500000}}}
{"time": 1055, "event": "reclaim", "job": 3, $companion, "cause": "basic-demand", "reason": "needed by job 5 <b>"}
{"time": 1058.5, "event": "pause", "job": 3, "mode": "live", "stopped_s": 0.3, "workers": 2, "parts": null}
{"time": 1060, "event": "companion-ended", "job": 3, $companion, "reason": "needed by job 5"}
EVENTS
jq -nc 'def steps($from; $n; $at; $step; $generation; $world): range($n) |
    {step: ($from + .), loss: (5 - ($from + .) / 50), time: ($at + (. + 1) * $step), step_s: $step, generation: $generation, world: $world};
  steps(1; 20; 1010; 1; 0; 2), steps(21; 50; 1030.5; 0.55; 1; 4), steps(71; 30; 1058.25; 1; 2; 2)' > log.jsonl
jq -c '.loss += 0.001' log.jsonl > reference.jsonl
printf '{"job": 5, "gpus": 2, "submitted": 1054.5, "started": 1060}\n' > rigid.jsonl
jq -n '{job: 3, events: [{event: "profile", generation: 1, predicted_speedup: 1.9}, {event: "scale", table: [{gpus: 2, samples_per_s: 10}, {gpus: 4, samples_per_s: 19}]}]}' > history.json
options=(--gpus gpus.jsonl --events events.jsonl --log 3=log.jsonl --reference 3=reference.jsonl --history 3=history.json --rigid rigid.jsonl
  --note '1054.5=rigid job submitted' --page page.html --summary summary.json)
make_page() { python3 "$top/contrib/lib/make_page.py" "$@"; }

is_made() {
  make_page "${options[@]}" > text && cat text && grep -q 'is lent 2 GPUs on node2\[0-1\]' text && jq . summary.json &&
    jq -e '.grants == 1 and .reclaims == 1 and .resizes == 2 and .live_switches == 2 and .lent_gpu_s == 80 and .orphans == 0 and
      .rigid_waits_s == [5.5] and .steps == 100 and .loss_last < .loss_first' summary.json
}
check 'a page, a text and a summary are made' is_made
alone() { ! grep -oE '(src|href)=|url\([^#]|@import|<script|<link' page.html && ! grep 'http' page.html | grep -vF 'http://www.w3.org/2000/svg'; }
check 'the page needs nothing from elsewhere' alone

refused() { # WORDS OPTION...
  local words=$1 said
  shift
  said=$(make_page "$@" 2>&1) && { printf '%s was taken\n' "$*"; return 1; }
  printf '%s\n' "$said"
  [[ $said == "make_page: "*"$words"* && $said != *$'\n'* ]]
}
wrong_input() {
  printf '{"step": 1}\n' > no-loss && printf 'words\n{}\n' > no-json && : > nothing && printf '{"events": [{"event": "scale"}]}\n' > no-history || return
  refused 'line 1 has no '"'loss'" "${options[@]}" --log 3=no-loss && refused 'line 1 is not JSON' "${options[@]}" --rigid no-json &&
    refused 'cannot be read' "${options[@]}" --events none && refused 'watch_gpus.py' "${options[@]}" --gpus nothing &&
    refused 'knows no elastic job 9, but 3' "${options[@]}" --log 9=log.jsonl && refused 'give JOB=FILE' "${options[@]}" --log log.jsonl &&
    refused 'swell history 3' "${options[@]}" --history 3=no-history && refused 'TIME=WORDS' "${options[@]}" --note now && refused 'none/page' "${options[@]}" --page none/page
}
check 'wrong input is one error that names it, and says what is wanted' wrong_input
unfinished() { cp gpus.jsonl cut && printf '{"time": 11' >> cut && make_page "${options[@]}" --gpus cut --page cut.html > text && cmp page.html cut.html; }
check 'a last line that was being written is left out' unfinished
few() { make_page --gpus gpus.jsonl --events events.jsonl --log 3=<(head -n 1 log.jsonl) --page few.html --summary few.json > text && grep -q 'No job was resized' few.html; }
check 'a job that made one step, without a profile and never resized, has a page' few

browser=''
for one in chromium-headless-shell chromium google-chrome; do
  if [[ -z $browser ]] && command -v "$one" > /dev/null; then browser=$one; fi
done
# A script in a copy of the page measures what the browser has drawn.
cat > measure.html << 'SCRIPT'
<script>
const all = (what) => [...document.querySelectorAll(what)];
const box = (each) => { const b = each.getBoundingClientRect(); return {x: b.x, y: b.y, w: b.width, h: b.height}; };
const bars = (what) => all(what).map((each) => ({...each.dataset, ...box(each), fill: getComputedStyle(each).fill, title: each.querySelector('title').textContent}));
const rows = (what) => all(what + ' tbody tr').map((row) => [...row.cells].map((cell) => cell.textContent));
const lightness = (colour) => { const [r, g, b] = colour.match(/[\d.]+/g).map((n) => { n /= 255; return n <= 0.04 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => { const [x, y] = [lightness(a), lightness(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
const back = getComputedStyle(document.body).backgroundColor;
const found = document.createElement('pre');
found.id = 'found';
found.textContent = JSON.stringify({
  back, own: bars('rect.own'), lent: bars('rect.lent'), rigid: bars('rect.gpu.rigid'), pauses: bars('rect.pause'),
  marks: all('path.lent, path.back').length, chart: box(document.querySelector('svg.gpus')), idle: box(document.querySelector('rect.idle')),
  losses: all('polyline.loss').map((each) => ({...each.dataset, points: each.points.length, ...box(each)})),
  unresized: all('polyline.unresized').map((each) => ({...each.dataset, points: each.points.length, ...box(each)})),
  predicted: all('polyline.predicted').length, real: all('circle.real').map((each) => ({...each.dataset, y: box(each).y})),
  rings: all('circle.ring').map((each) => ({y: box(each).y})), patterns: all('pattern').length,
  stays: rows('table.stays'), pauseRows: rows('table.pauses'), waits: rows('table.waits'), decisions: rows('table.decisions'),
  contrasts: all('td, th, p, h1, h2').map((each) => contrast(getComputedStyle(each).color, back)).concat(all('text').map((each) => contrast(getComputedStyle(each).fill, back))),
  wide: document.documentElement.scrollWidth, seen: innerWidth});
document.body.append(found);
</script>
SCRIPT
look_at() { # PAGE OPTION...: what the browser says of itself is in browser.log
  local page=$1
  shift
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir="$work/profile" --window-size=1180,2400 \
    --virtual-time-budget=1000 "$@" "file://$(realpath "$page")" 2> browser.log
}
measured() { # PAGE OPTION...: into found.json
  sed '/<\/body>/d; /<\/html>/d' "$1" | cat - measure.html > measured.html && look_at measured.html "${@:2}" --dump-dom > dom || { cat browser.log; return 1; }
  sed -n 's/.*<pre id="found">\(.*\)<\/pre>.*/\1/p' dom | sed 's/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' > found.json
  jq -e . found.json > /dev/null && ! grep -E 'CONSOLE.*(rror|ailed)' browser.log
}
holds() { # FILTER...: each is true of found.json
  local filter
  for filter; do jq -e "$filter" found.json > holds.log || { printf 'not so: %s\n' "$filter"; jq -c . found.json | cut -c 1-3000; return 1; }; done
}
notices_errors() {
  printf '<!doctype html><script>nothing.here()</script>' > broken.html && look_at broken.html --dump-dom > dom && grep -E 'CONSOLE.*rror' browser.log
}
# 100 s are as wide as the row of a GPU; what stands still is drawn within it.
bars_are_drawn() {
  measured page.html || return
  holds '(.own | length) == 2 and (.lent | length) == 2 and (.rigid | length) == 2' \
    '[.own, .lent, .rigid | .[]] | all(.w > 0 and .h > 4)' \
    'def seconds($bars): ($bars | map(.w) | add) / .idle.w * 100; (seconds(.own) - 190 | fabs) < 0.5 and (seconds(.lent) - 80 | fabs) < 0.5 and (seconds(.rigid) - 60 | fabs) < 0.5' \
    '(.lent[0].x - .idle.x) / .idle.w * 100 - 20 | fabs < 0.3' '[.lent[].gpu] == ["node2:0", "node2:1"]' '[.lent[].job] == ["3", "3"]' \
    '.own[0].fill != .rigid[0].fill and (.lent[0].fill | contains("url")) and .patterns == 1' '.chart as $c | [.own, .lent, .rigid, .pauses | .[]] | all(.x >= $c.x and .x + .w <= $c.x + $c.w)' \
    '.own[0].title == "node1:0: job 3 (gpt & co), its own, 95.0 s"' '.marks == 2' '.wide <= .seen'
}
pauses_are_drawn() { # steps end at 1030 and begin at 1030.5; end at 1058 and begin at 1058.25
  holds '[.pauses[].stopped] == ["0.500", "0.250"]' '[.pauseRows[] | .[3:6]] == [["2 → 4", "0.50", "0.40"], ["4 → 2", "0.25", "0.30"]]' \
    '(.pauses[0].x - .idle.x) / .idle.w * 100 - 30 | fabs < 0.3'
}
speeds_are_drawn() {
  holds '[.real[].speedup] == ["1.000", "1.818", "1.000"]' '[.stays[] | [.[4], .[7], .[8]]] == [["2 + 0", "1.00", "–"], ["2 + 2", "1.82", "1.90"], ["2 + 0", "1.00", "–"]]' \
    '.predicted == 1 and (.rings | length) == 1 and .rings[0].y < .real[1].y and .real[1].y < .real[0].y'
}
losses_are_drawn() {
  holds '.losses == [.losses[0]] and .losses[0].points == 100 and .unresized[0].points == 100 and .losses[0].h > 80 and .losses[0].w > 200' &&
    grep -q 'at most 3.3e-04 (relative) from the unresized run, over 100 common steps' dom
}
decisions_are_told() {
  holds '.waits == [["54.5", "job 5", "2", "5.50"]]' 'any(.decisions[]; .[2] == "is granted 2 GPUs on node2" and .[3] == "1.90 times as fast is predicted, by 4L dp4")' \
    'any(.decisions[]; .[2] == "is asked to give back 2 GPUs on node2[0-1]" and .[3] == "needed by job 5 <b>")' 'any(.decisions[]; .[3] | endswith("2.5 MB of state moved"))'
}
is_readable() { # by WCAG's contrast for text
  local light
  holds '(.contrasts | length) > 60 and (.contrasts | min) >= 4.5' && light=$(jq -r .back found.json) &&
    measured page.html --blink-settings=preferredColorScheme=0 && holds '(.contrasts | min) >= 4.5' && [[ $(jq -r .back found.json) != "$light" ]]
}
# A real run is known beforehand only by its files, and by its three elastic jobs, which are all lent GPUs.
shows_the_run() {
  measured "$given/page.html" && jq -s 'map(.lent_gpu_s) | add' "$given/summary.json" > lent && jq -s '(.[-1].time - .[0].time)' "$given/gpus.jsonl" > span &&
    holds "((.lent | map(.w) | add) / .idle.w * $(cat span)) / $(cat lent) - 1 | fabs < 0.02" '[.own, .lent] | all([.[].job] | unique | length == 3)' \
      '(.contrasts | min) >= 4.5' '(.losses | length) == 3 and (.unresized | length) == 3 and ([.losses[].job] | unique | length) == 3' &&
    jq -e --slurpfile found found.json '.resizes == ($found[0].pauses | length) and .grants == ([$found[0].decisions[] | select(.[2] | startswith("is lent"))] | length)' "$given/summary.json"
}
if [[ -n $browser ]]; then
  check 'an error in a page is noticed' notices_errors
  check 'a browser draws each GPU of each job for as long as the job had it, own ones and lent ones apart' bars_are_drawn
  check 'pauses are drawn where training stood still, and as long' pauses_are_drawn
  check 'speed-ups that were seen are drawn beside the predicted ones' speeds_are_drawn
  check 'losses are drawn beside those of the unresized run, with how far they are apart' losses_are_drawn
  check 'each decision is told with its reason, whatever is written there' decisions_are_told
  check 'all words can be read, on a light screen and on a dark one' is_readable
  [[ -z $given ]] || check "the page of the run in ${given##*/} shows that run" shows_the_run
else
  printf '# not opened in a browser: no chromium-headless-shell or chromium here; contrib/setup installs it\n'
  # There nothing is left out in silence.
  [[ ${CI:-} != true ]] || check 'a browser is here' false
fi
finish_tests
