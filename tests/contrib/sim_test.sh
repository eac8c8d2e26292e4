#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell sim as people run it: repeatable, wrong input refused in one line, and a page that a browser draws.
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
swell=${SWELL_STAGE:-$top/build/stage}/bin/swell
[[ -x $swell ]] || { printf 'SKIP: no swell in %s; set SWELL_STAGE\n' "${swell%/*}"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
sim() { "$swell" sim --cluster 2x8:h100 --hours 2 --policy fifo,fewest-first,marginal-benefit --seeds 3 "$@"; }

same_bytes() {
  sim --decision-time fixed --threads 1 --json "$work/one" --csv "$work/one.csv" &&
    sim --decision-time fixed --threads 2 --json "$work/two" --csv "$work/two.csv" &&
    cmp "$work/one" "$work/two" && cmp "$work/one.csv" "$work/two.csv"
}
check 'a seed gives the same bytes, whatever the number of threads' same_bytes

priced() { # WORDS [option]: whether the output says so of changes of plan
  sim --decision-time fixed "${@:2}" > "$work/said" && grep -q "$1" "$work/said" || { tail -n 3 "$work/said"; return 1; }
}
prices() {
  priced '0.54 s to grow (tests/bench/frameworks' && priced '33.7 s to grow (tests/bench/frameworks' --redeployment restart &&
    priced "cost what a model of Suika's published figures says, which" --redeployment suika
}
check 'changes of plan cost what was measured, with the source, unless the papers are asked for' prices

trace() {
  printf 'job_id,submit_s,num_gpus,duration_s\na,0,1,600\nb,60,4,900\n' > "$work/trace.csv"
  sim --trace "$work/trace.csv" --json - > "$work/json" && grep -q '"jobs": *2,' "$work/json" &&
    grep -q '"max_delay_vs_fifo_s"' "$work/json" && ! grep -q 'GPUs used' "$work/json"
}
check 'a trace is simulated, and --json - prints nothing else' trace

refused() { # WORD OPTION...
  local word=$1 said
  shift
  said=$("$swell" sim --policy fifo --hours 1 "$@" 2>&1) && { printf '%s was taken\n' "$*"; return 1; }
  [[ $said == *"$word"* && $said != *terminate* ]] || { printf '%s: %s\n' "$*" "$said"; return 1; }
}
how_many() {
  { printf 'submit_s,num_gpus,duration_s\n'; for ((i = 0; i < 400; ++i)); do printf '%s,2,600\n' "$i"; done; } > "$work/400.csv"
  "$swell" sim --cluster 2x8:h100 --trace "$work/400.csv" --sample --policy fifo > "$work/said" 2> "$work/warned" &&
    grep '^3 of 400 jobs of the trace (--sample --trace-gpus 2490: .*) on 16 GPUs' "$work/said" && grep '^swell: these ratios are of 3 jobs' "$work/warned" || { cat "$work/said"; return 1; }
  "$swell" sim --cluster 2x8:h100 --trace "$work/400.csv" --policy fifo > "$work/said" 2> "$work/warned" &&
    grep '^400 jobs of the trace on 16 GPUs' "$work/said" && [[ ! -s $work/warned ]] || { cat "$work/said"; return 1; }
  refused '--sample' --trace "$work/400.csv" --trace-gpus 16 &&
  grep -q 'swell sim --cluster NODESxGPUS:TYPE --trace FILE` prints the same page anywhere, and with `--policy fifo,swell`' "$top/README.md"
}
check 'all jobs of a trace are taken, or a sample where that is asked for, and a few are warned of' how_many

# A month of a site's jobs in one of four forms: arrays, CPU jobs, cancelled and running ones among them.
month() { # FORM JOBS
  python3 - "$@" << 'MONTH'
import json, sys
form, jobs = sys.argv[1], int(sys.argv[2])
separator = {"bars": "|", "csv": ",", "semicolons": ";"}.get(form)
rows = []
for i in range(jobs):
    kind, gpus = i % 10, (1, 2, 4, 8)[i % 4]
    rows.append((f"{i // 3}_{i % 3}" if kind == 1 else str(i), ("research", "nlp")[i % 2], 1767225600 + i * 50,
                 0 if kind == 2 else 60 + (i * 37) % 3600, 0 if kind == 3 else gpus,
                 "CANCELLED by 1000" if kind == 2 else "RUNNING" if kind == 4 else "COMPLETED"))
if separator:
    quote = (lambda text: f'"{text}"') if form == "csv" else (lambda text: text)
    end = "\r\n" if form == "csv" else "\n"
    sys.stdout.write("\ufeff" if form == "csv" else "")
    print("JobID", "Account", "Submit", "ElapsedRaw", "AllocTRES", "State", sep=separator, end=end)
    for name, account, at, ran, gpus, state in rows:
        tres = f"billing=8,cpu=8,gres/gpu:h100={gpus},gres/gpu={gpus},node=1" if gpus else "billing=8,cpu=8,node=1"
        print(name, account, at, ran, quote(tres), state, sep=separator, end=end)
else:
    print(json.dumps({"jobs": [{"job_id": i, "account": account, "state": {"current": [state.split()[0]]},
        "time": {"submission": {"set": True, "infinite": False, "number": at}, "elapsed": ran},
        "tres": {"allocated": [{"type": "cpu", "name": "", "count": 8}] + [{"type": "gres", "name": "gpu", "count": gpus}] * (gpus > 0),
                 "requested": []}} for i, (_, account, at, ran, gpus, state) in enumerate(rows)], "meta": {}}))
MONTH
}
forms() {
  local form
  for form in bars csv semicolons json; do
    PYTHONIOENCODING=utf-8 month "$form" 50000 > "$work/month.$form" || return 1
    "$swell" sim --cluster 2x8:h100 --trace "$work/month.$form" --hours 6 --policy fifo > "$work/said.$form" 2> "$work/warned" || { cat "$work/warned"; return 1; }
    grep -q 'left out of the trace: 5000 ask for no GPU, 5000 did not run, 5000 wait or run still' "$work/warned" || { printf '%s: ' "$form"; cat "$work/warned"; return 1; }
    grep -q '^303 of 35000 jobs of the trace (--hours 6)' "$work/said.$form" || { printf '%s: ' "$form"; head -1 "$work/said.$form"; return 1; }
    cmp <(head -1 "$work/said.bars") <(head -1 "$work/said.$form") || return 1
  done
}
check 'a site'"'"'s jobs are read alike from sacct -P, CSV with quotes, semicolons and sacct --json' forms

# Without --policy a trace ends with the page that --site prints.
page_of() { # FORM OPTION...
  "$swell" sim --cluster 16x8:h100 --trace "$work/month.$1" "${@:2}" > "$work/page.$1" 2> "$work/warned" && [[ ! -s $work/warned ]] || { cat "$work/warned"; return 1; }
}
pages() {
  local form
  for form in bars csv semicolons json; do
    page_of "$form" --hours 24 && cmp <(sed 1d "$work/page.bars") <(sed 1d "$work/page.$form") || return 1
    grep -q "^1209 GPU jobs of $work/month.$form, on 128 GPUs of 16 nodes (h100)" "$work/page.$form" &&
      grep -q '^Left out of the whole trace, not only of --hours: 5000 ask for no GPU, 5000 did not run, 5000 wait or run still' "$work/page.$form" || { cat "$work/page.$form"; return 1; }
  done
}
check 'swell sim --trace makes one page of what sacct printed in each form' pages

month_of_jobs() {
  local spent TIMEFORMAT=%U
  spent=$({ time page_of json 1>&2; } 2>&1) || { printf '%s\n' "$spent"; return 1; }
  printf '# the page of a month of 50,000 jobs took %s s of processors\n' "$spent"
  for form in research nlp all; do grep -qE "^$form +[0-9]{5} +[0-9]+ +[0-9]+ .*[0-9.]+x" "$work/page.json" || { cat "$work/page.json"; return 1; }; done
  grep -q '^Left out: 5000 ask for no GPU' "$work/page.json" && grep -q '^35000 GPU jobs' "$work/page.json" && ((${spent%.*} < 60))
}
check 'the page of a month of 50,000 jobs is there in a minute' month_of_jobs

# A trace that keeps all GPUs busy, and one that does not.
why_nothing_is_gained() {
  local form='Without Swell jobs have [0-9]* % of the GPUs already, so there is little to lend'
  { printf 'submit_s,num_gpus,duration_s\n'; for ((i = 0; i < 300; ++i)); do printf '%s,%s,7200\n' $((i * 60)) $((1 << i % 4)); done; } > "$work/full.csv"
  { printf 'submit_s,num_gpus,duration_s\n'; for ((i = 0; i < 60; ++i)); do printf '%s,4,3600\n' $((i * 1800)); done; } > "$work/calm.csv"
  "$swell" sim --cluster 2x8:h100 --trace "$work/full.csv" --decision-time fixed > "$work/said" 2>&1 && grep "$form" "$work/said" || { cat "$work/said"; return 1; }
  "$swell" sim --cluster 2x8:h100 --trace "$work/calm.csv" --decision-time fixed > "$work/said" 2>&1 && ! grep -q "$form" "$work/said" || { cat "$work/said"; return 1; }
}
check 'the page of a full cluster says why nothing is gained' why_nothing_is_gained

wrong_pages() {
  local said
  said=$("$swell" sim --trace "$work/month.bars" 2>&1) && return 1
  [[ $said == *'--cluster 8x8:h100, or --site'* ]] || { printf '%s\n' "$said"; return 1; }
  said=$("$swell" sim --cluster 2x8:h100 --trace "$work/month.bars" --sample 2>&1) && return 1
  [[ $said == *'give --policy, too'* ]] || { printf '%s\n' "$said"; return 1; }
}
check 'a page without a cluster, or of a sample, is one error with what to give' wrong_pages

# Many more jobs than GPUs for them: no longer queue is looked at than Slurm's backfill looks at.
overloaded() {
  "$swell" sim --cluster 2x8:h100 --trace "$work/month.bars" --hours 72 --decision-time fixed > "$work/said" 2>&1 && grep -qE '^all +[0-9]+ ' "$work/said" || { cat "$work/said"; return 1; }
}
check 'a queue of thousands of jobs is simulated' overloaded

wrong_input() {
  printf 'submit_s,num_gpus\n1,2\n' > "$work/bad.csv"
  refused 'no column "duration_s"' --trace "$work/bad.csv" && refused 'No such file' --trace "$work/none" &&
    refused nosuch --policy nosuch && refused 'S:M:L' --mix 3:1 && refused 'NODESxGPUS:TYPE' --cluster 8x8:h99 &&
    refused 'No such file' --json "$work/none/json" && refused '--hours: 0 is not above 0; give a number above 0' --hours 0 || return
  printf 'submit_s,num_gpus,duration_s\n1,2,3\n' | gzip > "$work/packed.csv" && refused 'it is compressed; unpack it first, by gunzip' --trace "$work/packed.csv"
}
check 'wrong input is one error that names it' wrong_input

settings() {
  sim --decision-time fixed --csv "$work/usual.csv" && sim --decision-time fixed --set fewest-first.growth-interval=600 \
    --set marginal-benefit.aggressiveness=0 --csv "$work/set.csv" && cmp <(grep ^fifo "$work/usual.csv") <(grep ^fifo "$work/set.csv") || return 1
  for policy in fewest-first marginal-benefit; do
    ! cmp -s <(grep "^$policy" "$work/usual.csv") <(grep "^$policy" "$work/set.csv") || { printf '%s is as ever\n' "$policy"; return 1; }
  done
  refused 'fifo' --set fifo.margin=1 && refused 'not among those to simulate' --set swell.margin=1 && refused '"x" is not POLICY' --set x &&
    refused 'there are: min-growth' --policy fewest-first --set fewest-first.x=1
}
check 'single policies are set by --set' settings

wrong_shares() {
  local share
  for share in -0.1 1.1 half nan; do
    refused "--consent-share: \"$share\" is not a share; give a number from 0 to 1" --consent-share="$share" || return 1
  done
  for share in 0 -1 1.5 x; do
    refused "--least-share: \"$share\" is not a share; give a number above 0 and up to 1" --least-share="$share" || return 1
  done
}
check 'a share that is none is named with the shares there are' wrong_shares

consent() {
  sim --decision-time fixed --policy swell --csv "$work/usual.csv" && sim --decision-time fixed --policy swell \
    --consent-share 0 --least-share 0.25 --csv "$work/none.csv" && cmp "$work/usual.csv" "$work/none.csv" &&
    sim --decision-time fixed --policy swell --consent-share 1 --csv "$work/all.csv" &&
    sim --decision-time fixed --policy swell --consent-share 1 --least-share 0.25 --csv "$work/quarter.csv" || return 1
  for policy in swell fewest-first marginal-benefit; do
    ! cmp -s <(grep "^$policy" "$work/usual.csv") <(grep "^$policy" "$work/all.csv") || { printf 'nobody consents under %s\n' "$policy"; return 1; }
  done
  ! cmp -s "$work/all.csv" "$work/quarter.csv" || { printf 'a quarter is as half\n'; return 1; }
  cmp <(grep ^fifo "$work/usual.csv") <(grep ^fifo "$work/all.csv")
}
check 'consent changes what the policies of clusters do, and not what fifo does' consent

page() { sim --decision-time fixed --report "$work/page.html" > /dev/null && [[ -s $work/page.html ]]; }
check 'a page is written' page
alone() { ! grep -oE '(src|href)=|url\(|@import|https?:|<script' "$work/page.html"; }
check 'the page needs nothing from elsewhere' alone

browser=''
for one in chromium-headless-shell chromium google-chrome; do
  if [[ -z $browser ]] && command -v "$one" > /dev/null; then browser=$one; fi
done
look() { # OPTION...: what the browser makes of the page
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --window-size=1200,2200 \
    --virtual-time-budget=1000 "$@" "file://$work/page.html" 2> "$work/browser.log"
}
drawn() {
  local drawings
  look --dump-dom > "$work/dom" || { cat "$work/browser.log"; return 1; }
  drawings=$(grep -o '<svg role="img"' "$work/dom" | wc -l)
  ((drawings >= 7)) || { printf '%s drawings of at least 7\n' "$drawings"; return 1; }
  grep -q 'marginal-benefit' "$work/dom" || { printf 'a policy is not named\n'; return 1; }
  if grep -qE '(nan|inf)[ ,"]' <<< "$(grep -oE ' (d|x|y|width|x1|y1)="[^"]*"' "$work/dom")"; then printf 'a coordinate is not a number\n'; return 1; fi
}
seen() {
  look --screenshot="$work/page.png" > /dev/null || { cat "$work/browser.log"; return 1; }
  # An empty page of this size takes 8 kB.
  (($(stat -c %s "$work/page.png") > 40000)) || { printf 'the picture is nearly empty: %s bytes\n' "$(stat -c %s "$work/page.png")"; return 1; }
}
if [[ -n $browser ]]; then
  check 'a browser finds all drawings in the page' drawn
  check 'a browser draws the page' seen
else
  printf '# not opened in a browser: no chromium-headless-shell or chromium here\n'
fi

finish_tests
