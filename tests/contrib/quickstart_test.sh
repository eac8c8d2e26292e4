#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The quickstart does what it says, and a Prometheus that scrapes it meanwhile has numbers for each query of the dashboard.
#   quickstart_test.sh [FOLDER [STAGE]]   the run's files go to FOLDER, where page_test.sh looks at them; with STAGE nothing is built
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
for program in prometheus curl jq; do
  command -v "$program" > /dev/null || { printf '1..0 # SKIP no %s here: run contrib/setup\n' "$program"; exit 77; }
done
work=$(mktemp -d) || exit 1
out=$(realpath -m "${1:-$work/quickstart-out}") stage=${2:+$(realpath -m "$2")}
cluster=$top/contrib/cluster
chmod 755 "$work"
pids=() running=''
finish() {
  kill "${pids[@]}" 2> /dev/null
  [[ -z $running ]] || "$cluster" stop --name "$running" --keep-logs "$out/logs" > /dev/null 2>&1
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
cd "$work" || exit 1
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
# shellcheck source=tests/support/prometheus.sh
source "$top/tests/support/prometheus.sh"

begins() {
  "$top/contrib/quickstart" --keep --out "$out" ${stage:+--stage "$stage"} > quickstart.log 2>&1 &
  quickstart=$!
  pids+=("$quickstart")
  running=quickstart-$quickstart
  until_true 600 eval '! kill -0 "$quickstart" || is_up' && is_up && eval "$("$cluster" env --name "$running")" || return
  for each in "$stage" "$top"/build-{check,quickstart}/stage; do
    [[ ! -x $each/bin/swell ]] || { PATH=$each/bin:$PATH && return; }
  done
}
# The output of env is true before slurmctld answers.
is_up() { (eval "$("$cluster" env --name "$running")" && scontrol ping | grep -q 'is UP'); }
passes() {
  wait "$quickstart"
  local status=$?
  cat quickstart.log
  return "$status"
}
check 'the quickstart starts a cluster' begins
check 'Prometheus scrapes it from its first job on' eval 'exporter_up && scrapes'
check 'the quickstart passes' passes
check 'each query of the dashboard is answered with numbers of it' dashboard
finish_tests
