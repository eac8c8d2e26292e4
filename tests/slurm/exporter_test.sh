#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Metrics: what `swell exporter` serves is what Prometheus reads, and each query of the dashboard is answered with numbers;
# what slurmctld itself serves, from Slurm 25.11 on, is not said again.
programs=(planned) # of lib.sh
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/slurm/hostile_lib.sh
source "$here/hostile_lib.sh"
# shellcheck source=tests/support/prometheus.sh
source "$top/tests/support/prometheus.sh"
for program in prometheus promtool curl; do
  command -v "$program" > /dev/null || lacks "$program"
done
after_check() { :; } # one job lives over several behaviours
slurms_metrics=()
[[ -z $(find /usr/lib /usr/lib64 -name metrics_openmetrics.so -path '*slurm*' 2> /dev/null) ]] || slurms_metrics=(--conf MetricsType=metrics/openmetrics)
profile_wait=600 cluster_up --nodes 2 --gpus-per-node 4 --users nobody,games ${slurms_metrics[@]+"${slurms_metrics[@]}"}
pids=()
trap 'kill "${pids[@]}" 2> /dev/null; cluster_down; rm -rf "$TMPDIR"' EXIT

# of_slurm: all that slurmctld serves on its own port.
of_slurm() {
  local port one
  port=$(scontrol show config | sed -n 's/^SlurmctldPort *= *//p') || return
  for one in jobs nodes partitions scheduler jobs-users-accts; do curl -sf --max-time 60 "http://127.0.0.1:$port/metrics/$one" || return; done
}
names() { sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' | sort -u; }
slurm_says() { of_slurm > said && grep -qx "$1" said; }
# numbers: of Swell's, but for times.
numbers() { swell exporter --once | grep -v '^#\|_seconds'; }
repeats_no_name() {
  of_slurm | names > slurms && swell exporter --once | names > ours || return
  printf '%s families of slurmctld, %s of Swell\n' "$(wc -l < slurms)" "$(wc -l < ours)"
  (($(wc -l < slurms) > 100 && $(wc -l < ours) > 10)) && ! comm -12 slurms ours | grep . &&
    ! comm -12 <(sed -E 's/^slurm_((node|partition|user|account|sdiag)_)?//' slurms | sort -u) <(sed 's/^swell_//' ours | sort -u) | grep .
}
# Slurm's numbers of jobs, GPUs and nodes change with a job that Swell has no part in; Swell's do not.
repeats_no_number() {
  numbers > before && rigid --gres=gpu:3 && rigid --hold --gres=gpu:3 && within 60 slurm_says 'slurm_jobs_running 1' && within 60 slurm_says 'slurm_jobs_hold 1' &&
    slurm_says 'slurm_jobs_gpus_alloc 3' && slurm_says 'slurm_nodes_mixed 1' && numbers > after && diff before after && (($(wc -l < after) > 20))
}
if ((${#slurms_metrics[@]} > 0)); then
  check 'no family of metrics has the name of one of slurmctld, whatever its prefix' repeats_no_name
  check 'no number of them is one that slurmctld serves' repeats_no_number
  clear_queue
else
  printf '# skipped: this Slurm serves no metrics of its own; 25.11 and later do, SWELL_SLURM=26.05\n'
fi

submit --elastic=max=8 --gres=gpu:2
check 'a job is lent GPUs' within 60 grown "$job" 8

# As a user who is nobody to Slurm.
serve() { exporter_up setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups -- && port=$exporter_port; }
scraped() { curl -sf --max-time 60 "$@" "http://127.0.0.1:$port/metrics"; }
value_is() { scraped | grep -qx "$1 $2"; }
serves() {
  serve && scraped > metrics && within 60 value_is swell_up 1 && within 60 value_is swell_lent_gpus 6 && within 60 value_is 'swell_grants_total{outcome="taken"}' 2 &&
    within 60 value_is 'swell_elastic_jobs{state="ACTIVE"}' 1
}
check 'anybody may serve them, on the loopback interface' serves

well_formed() {
  scraped > metrics && promtool check metrics < metrics && scraped -H 'Accept: application/openmetrics-text; version=1.0.0' > open &&
    [[ $(tail -n 1 open) == '# EOF' ]] && grep -q '^# TYPE swell_grants counter$' open
}
check 'promtool finds nothing wrong with them' well_formed

bounded() { ! grep -E "job=|user=|node=|$(id -un)" metrics && (($(grep -vc '^#' metrics) < 120)); }
check 'no series names a job, a user or a node' bounded
each_job() { swell exporter --once --per-job > per_job && grep -q "^swell_job_gpus{job=\"$job\",user=\"root\",kind=\"lent\"} 6$" per_job; }
check 'a series for each job is there where it is asked for' each_job

text_file() { swell exporter --once --textfile "$work/swell.prom" && promtool check metrics < "$work/swell.prom" && grep -q '^swell_up 1$' "$work/swell.prom"; }
check 'a file for node_exporter is written' text_file
planted() { # by another user, in a folder of all, beside the file
  mkdir -m 777 shared && printf 'as it was\n' > victim && ln -s ../victim shared/swell.prom.new && mkdir shared/other.prom.new || return
  local file
  for file in swell other; do swell exporter --once --textfile "shared/$file.prom" && grep -q '^swell_up 1$' "shared/$file.prom" || return; done
  [[ $(cat victim) == 'as it was' && ! -L shared/swell.prom && $(find shared -mindepth 1 | wc -l) == 4 ]]
}
check 'a link that others planted beside it is not followed, and a folder there stops nothing' planted

says() { # REQUEST: what the exporter answers to it
  local fd
  exec {fd}<> "/dev/tcp/127.0.0.1/$port" && printf '%b' "$1" >&"$fd" && timeout 60 cat <&"$fd"
  exec {fd}>&-
}
# A byte a second, for longer than others wait for theirs.
drips() {
  local i
  exec {drip}<> "/dev/tcp/127.0.0.1/$port" || return
  for i in {1..100}; do printf x >&"$drip" && sleep 1 || break; done 2> /dev/null
}
others_wait_not() {
  says 'POST /metrics HTTP/1.1\r\n\r\n' | grep '405' && says 'GET / HTTP/1.1\r\n\r\n' | grep '404' || return
  [[ -z $(says "GET /metrics$(head -c 20000 /dev/zero | tr '\0' x)") ]] || return
  drips &
  pids+=($!)
  exec {silent}<> "/dev/tcp/127.0.0.1/$port" && sleep 0.5 && scraped > again && grep -qx 'swell_up 1' again
}
check 'silent and verbose clients do not keep others from them' others_wait_not

# As root: it runs as another user.
many_silent() {
  python3 "$here/strangers.py" games silent 700 "$port" > met &
  pids+=($!)
  within 60 grep -q here met && timeout 4 curl -sf --max-time 4 "http://127.0.0.1:$port/metrics" | grep -x 'swell_up 1'
  local result=$?
  kill "${pids[-1]}"
  return $result
}
check 'silent clients of another user do not either, as many as may come' many_silent
forms() { # of --listen; the first three are shown in their own form
  local form
  for form in '[::]:0' '[::1]:0' ':0' '0' '127.0.0.1:0'; do
    timeout 2 swell exporter --listen "$form" > form.out 2>&1
    [[ $? == 124 ]] && grep -q '^listening at ' form.out || { echo "$form: $(cat form.out)"; return 1; }
  done
  swell exporter --listen '[::1' > form.out 2>&1 && return 1
  grep -F -- '--listen=[::1: give ADDRESS:PORT' form.out
}
check 'it listens where other exporters can be told to' forms

check 'Prometheus scrapes them' scrapes

screen() {
  swell top --once > top && cat top && grep -q '8 GPUs: 2 asked for (#), 6 lent (+), 0 idle' top && grep -q " $job .*ACTIVE" top &&
    swell top --json | jq -e '.gpus.lent == 6 and (.jobs | length) == 1 and (.metrics.families | length) > 5' > /dev/null
}
check 'swell top shows the same' screen

# Drawn anew until `q` or a signal ends it; the terminal is as it was.
live_screen() {
  local end
  for end in q TERM; do
    python3 "$here/on_terminal.py" "$end" swell top --interval 0.5 > screen && cat screen && grep -q '8 GPUs: 2 asked for (#), 6 lent (+), 0 idle' screen &&
      grep -q " $job .*ACTIVE" screen || return
  done
}
check 'its screen is drawn on a terminal, ends on q, and leaves the terminal as it was' live_screen

# A live job reports a profile, is lent GPUs for it, and what it gains is compared with what was predicted. The first job
# pauses for it by restart, and then makes room.
live_one() {
  local first=$job
  job=$(sbatch --parsable --output="$work/%j.out" --elastic=mode=live,max=4,grace=20 --gres=gpu:2 --wrap 'exec swellrun ./planned 8 8 1000 4') &&
    within 60 in_state "$job" RUNNING && within 60 grown "$first" 6 && scancel "$first" && within 60 ended "$first" &&
    within 100 is_lent "$job" 2 && within 100 value_is 'swell_pause_seconds_count{mode="live"}' '[1-9]' && within 100 compared
}
compared() { scraped | grep -E '^swell_prediction_error_ratio_count [1-9]'; }
check 'a live job is lent GPUs by its profile, and what it gains is counted' live_one
decided() { scraped | grep -E '^swell_decision_seconds_count [1-9]'; }
check 'so is how long decisions take' decided

check 'each query of the dashboard is answered with numbers' dashboard

down() { "$cluster" kill-ctld -KILL && within 60 value_is swell_up 0 && promtool check metrics < <(scraped) && "$cluster" restart-ctld && within 60 value_is swell_up 1; }
check 'while slurmctld is down they say so' down
scancel "$job" && within 60 ended "$job"
finish_tests
