# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Starts Debian's Prometheus, which scrapes a `swell exporter`, and queries it. Sourced after tap.sh, in a writable folder. Needs
# `top` and an array `pids`, which the caller kills at its end.

# exporter_up COMMAND...: runs `COMMAND... swell exporter` as one process; sets exporter_port.
exporter_up() {
  (exec "$@" "$(command -v swell)" exporter --listen 127.0.0.1:0) > exporter.out 2>&1 &
  pids+=($!)
  until_true 20 grep -q listening exporter.out && exporter_port=$(sed -n 's/.*127.0.0.1://p' exporter.out)
}
# prometheus_up: sets prometheus_port.
prometheus_up() {
  prometheus_port=$((20000 + RANDOM % 20000))
  printf 'global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: swell\n  static_configs: [{targets: ["127.0.0.1:%s"]}]\n' "$exporter_port" > prometheus.yml
  prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address="127.0.0.1:$prometheus_port" > prometheus.log 2>&1 &
  pids+=($!)
  until_true 30 answers 'swell_up == 1' || { tail -n 5 prometheus.log; return 1; }
}
scrapes() { prometheus_up || prometheus_up; } # the port may be taken
answers() { # QUERY: Prometheus has at least one series for it, and a number for each
  curl -sf --max-time 60 --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" > answer &&
    jq -e '.status == "success" and (.data.result | length) > 0 and all(.data.result[]; .value[1] | test("^-?[0-9.]+(e[-+]?[0-9]+)?$"))' answer > /dev/null
}
# dashboard: runs each query of the dashboard, with a rate interval that covers the whole test, so that rare events count.
dashboard() {
  local query n=0
  while IFS= read -r query; do
    n=$((n + 1))
    until_true 30 answers "${query//\$__rate_interval/10m}" || { printf 'no number: %s\n' "$query"; cat answer; return 1; }
    printf '%s: %s\n' "$query" "$(jq -c '[.data.result[].value[1]]' answer)"
  done < <(jq -r '.panels[].targets[].expr' "$top/contrib/grafana/swell.json")
  printf '%s queries have numbers\n' "$n"
  ((n >= 12))
}
# until_true SECONDS COMMAND...: waits up to four times SECONDS, since the machine may be busy.
until_true() {
  local deadline=$((SECONDS + 4 * $1 + 1))
  shift
  until "$@" > /dev/null 2>&1; do
    ((SECONDS <= deadline)) || { printf 'not within the time: %s\n' "$*"; return 1; }
    sleep 0.3
  done
}
