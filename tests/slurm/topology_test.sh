#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The facts that nodes publish about themselves, and their users. 8 nodes under 4 switches, two each.
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
topo=$TMPDIR/topo
mkdir -m 755 "$topo"
describe() { # NODE SWITCH: a DGX-like description with 4 GPUs and 4 ports
  printf '{"v":1,"leaf":"%s","t":["h100"],"g":[[0,0,"1b:00.0"],[0,0,"3e:00.0"],[0,1,"9b:00.0"],[0,1,"be:00.0"]],"l":["n",450],"s":["fe80000000000000"],"h":[["mlx5_0",1,"i",400,0,"%016x",0,"18:00.0",[0,1]],["mlx5_1",1,"i",400,0,"%016x",1,"98:00.0",[2,3]]]}\n' \
    "$2" "$1" $(($1 + 100)) > "$topo/node$1.json"
}
# Switches that do not follow the nodes' numbers, so that no order by name finds neighbours.
for n in {1..8}; do describe "$n" "leaf$(((n - 1) % 4 + 1))"; done
cluster_up --nodes 8 --gpus-per-node 4 --topo-dir "$topo" --conf MessageTimeout=10

extra() { scontrol -o show node "$1" | sed -n 's/.* Extra=\(.*\)$/\1/p' | sed 's/ [A-Z][A-Za-z]*=.*//'; }
published() { # NODE [SWITCH]
  [[ $(extra "$1") == *'"swell":{"v":1,'*"${2:-}"* ]]
}
all_published() { for n in {1..8}; do published "node$n" "\"leaf$(((n - 1) % 4 + 1))\"" || return; done; }
helpers() { pgrep -f "$SWELL_STAGE/bin/swell topo --publish" | while read -r pid; do
  grep -qszxF -- "SWELL_CLUSTER_DAEMON=$SWELL_CLUSTER_DIR" "/proc/$pid/environ" && printf '%s\n' "$pid"
done; }
no_helpers() { [[ -z $(helpers) ]]; }

publishes() { within 20 all_published && within 10 no_helpers; }
check 'every node publishes its topology when its slurmd starts, and nothing is left running' publishes

keeps_other_keys() {
  scontrol update nodename=node1 'extra={"rack":{"row":7}}' && "$cluster" kill-slurmd node1 && "$cluster" start-slurmd node1 || return
  within 20 published node1 leaf1 && [[ $(extra node1) == '{"rack":{"row":7},"swell":'* ]]
}
check 'keys of other tools stay in Extra' keeps_other_keys

leaves_text_alone() {
  scontrol update nodename=node2 'extra=owned-by-ops' && "$cluster" kill-slurmd node2 && "$cluster" start-slurmd node2 || return
  within 20 grep -q 'Extra is "owned-by-ops", which is not a JSON object, and is left as it is' "$SWELL_CLUSTER_DIR/log/slurmd.node2.err" || return
  [[ $(extra node2) == owned-by-ops ]] && within 10 no_helpers || return
  scontrol update nodename=node2 'extra=' && "$cluster" kill-slurmd node2 && "$cluster" start-slurmd node2 && within 20 published node2 leaf2
}
check 'Extra that is not JSON is left alone, and that is said' leaves_text_alone

waits_for_the_controller() {
  scontrol update nodename=node3 'extra=' && "$cluster" kill-slurmd node3 && "$cluster" kill-ctld && "$cluster" start-slurmd node3 --timeout 2 > /dev/null 2>&1 # it answers with slurmctld alone
  within 10 has_helper && "$cluster" restart-ctld && within 45 published node3 leaf3 && within 10 no_helpers
}
has_helper() { ! no_helpers; }
check 'a node that starts before slurmctld publishes once that answers' waits_for_the_controller

ends_with_slurmd() {
  "$cluster" kill-slurmd node4 && "$cluster" kill-ctld && "$cluster" start-slurmd node4 --timeout 2 > /dev/null 2>&1
  within 10 has_helper && sleep 4 && "$cluster" kill-slurmd node4 -9 && within 20 no_helpers
  local good=$?
  "$cluster" restart-ctld && "$cluster" start-slurmd node4 && return $good
}
check 'nothing is left behind when slurmd ends before slurmctld answers' ends_with_slurmd

survives_a_restart() { "$cluster" restart-ctld && within 20 all_published; }
check 'the published topology survives a restart of slurmctld' survives_a_restart

shows_the_cluster() {
  within 20 all_published && swell topo --cluster > shown || return
  cat shown
  grep -q '^8 nodes, 32 GPUs; topology published by 8 nodes$' shown &&
    grep -qE '^same node, NVLink +48 +450 +- +- +description' shown &&
    grep -qE '^same switch +4 +50 +100 +- +description +description' shown &&
    grep -qE '^across +24 +25 +50 +- +description +description' shown &&
    grep -q '^level 1  leaf2: node\[2,6\]$' shown || return
  printf '{"version":1,"date":"2026-01-01T00:00:00Z","method":"tcp","classes":[{"distance":2,"gbytes_per_s":9,"latency_us":40}]}' > cal.json
  printf 'SwitchName=a Nodes=node[1-4]\nSwitchName=b Nodes=node[5-7]\nSwitchName=top Switches=a,b\n' > topology.conf
  swell topo --cluster --json --calibration cal.json --topology-conf topology.conf > shown.json || return
  python3 - << 'PY'
import json
d = json.load(open("shown.json"))
c = {each["class"]: each for each in d["classes"]}
assert c["2 switch levels up"]["node_gbytes_per_s"] == 9 and c["2 switch levels up"]["figures_from"] == "measured", c
assert c["same switch"]["places_from"] == "topology.conf" and c["same switch"]["pairs"] == 6 + 3, c
assert next(n for n in d["nodes"] if n["name"] == "node8")["groups"][0] == "leaf4", d
PY
}
check 'swell topo --cluster shows classes, figures and where they are from' shows_the_cluster

bad_files_are_named() {
  local said
  printf 'SwitchName=a Switches=b\n' > bad.conf
  said=$(swell topo --cluster --topology-conf bad.conf 2>&1) && return 1
  [[ $said == 'swell: topology.conf: switch a has a switch b below it, which has no line of its own' ]]
}
check 'a bad topology.conf on the command line is named' bad_files_are_named

prefers_neighbours() { # a job on node1 (leaf1): its neighbour is node5; one on node7 (leaf3): node3
  local pair
  for pair in node1:node5 node7:node3; do
    submit --elastic=max=8 --gres=gpu:4 -w "${pair%:*}" && within 40 grown "$job" 8 || return
    [[ $(word_of "$job" companions) == *":${pair#*:}:"* ]] || { word_of "$job" companions; return 1; }
    scancel "$job" && within 30 ended "$job" || return
  done
}
check 'companions go to the nodes nearest their parent' prefers_neighbours

finish_tests
