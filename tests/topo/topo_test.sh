#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# swell topo over machines that are not here. Run by `make check` as topo_test.sh SWELL, the program to test.
set -u -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
swell=$(realpath "${1:-${SWELL:-swell}}")
command -v python3 > /dev/null || { printf 'SKIP: python3, which makes the machines, is not installed\n'; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
python3 "$here/machines.py" "$dir" || exit 1
cd "$dir" || exit 1

# shellcheck source=tests/support/tap.sh
source "$here/../support/tap.sh"
# both MACHINE [options]: from hwloc and sysfs; only_sysfs: from sysfs alone
both() { "$swell" topo --hwloc-xml "$1/hwloc.xml" --sysfs-root "$1/sys" "${@:2}"; }
only_sysfs() { "$swell" topo --sysfs-root "$1/sys" "${@:2}"; }
only_hwloc() { "$swell" topo --hwloc-xml "$1/hwloc.xml" "${@:2}"; }
has_hwloc() { only_hwloc empty > /dev/null 2>&1; }
# holds EXPRESSION: over the JSON on standard input, called d
holds() {
  python3 -c '
import json, sys
d = json.load(sys.stdin)
def link(a, b): return next(l for l in d["links"] if l["between"] == [a, b])
sys.exit(0 if eval("(" + sys.argv[1] + ")") else "not so: " + sys.argv[1] + "\n" + json.dumps(d, indent=1))' "$1"
}

dgx() {
  both dgx-h100 --json --fabric-file subnet.ibnet | holds '
    len(d["gpus"]) == 8 and len(d["ports"]) == 8 and d["leaf"] == "ib-leaf-17" and
    all(g["type"] == "h100" and g["numa"] == i // 4 and g["nearest_ports"] == ["mlx5_%d/1" % i] for i, g in enumerate(d["gpus"])) and
    d["gpus"][0]["cores"] == "0-7" and d["gpus"][7]["cores"] == "8-15" and
    all(l["kind"] == "NVLink" and l["gbytes_per_s"] == 450 for l in d["links"]) and len(d["links"]) == 28 and
    all(p["gbit_per_s"] == 400 and p["link_layer"] == "InfiniBand" and p["subnet_prefix"] == "fe80000000000000" for p in d["ports"]) and
    d["ports"][3]["guid"] == "0c42a10300a1b003" and len(json.dumps(d["published"], separators=(",", ":"))) < 800'
}
dgx_gres() {
  local -a lines
  mapfile -t lines < <(both dgx-h100 --gres-conf)
  [[ ${#lines[@]} == 8 && ${lines[0]} == 'Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-7 Links=-1,18,18,18,18,18,18,18' &&
    ${lines[7]} == 'Name=gpu Type=h100 File=/dev/nvidia7 Cores=8-15 Links=18,18,18,18,18,18,18,-1' ]]
}
dgx_drawing() {
  both dgx-h100 > drawing && grep -q '8 GPUs, 8 network ports, 3200 Gbit/s out' drawing && grep -q 'NV450' drawing &&
    grep -q 'nearest to GPU 3' drawing
}
if has_hwloc; then
  check 'a DGX H100: NVLink everywhere, a port beside every GPU, its switch' dgx
  check 'its gres.conf has cores and links' dgx_gres
  check 'its drawing' dgx_drawing
fi

dgx_from_sysfs() {
  only_sysfs dgx-h100 --json | holds '
    [g["pci"] for g in d["gpus"]][:2] == ["0000:1b:00.0", "0000:3e:00.0"] and d["gpus"][4]["cores"] == "8-15" and d["leaf"] == "" and
    all(g["nearest_ports"] == ["mlx5_%d/1" % i] for i, g in enumerate(d["gpus"])) and link(0, 1)["kind"] == "PCIe" and
    not any(p["device"] == "eno1" for p in d["ports"])'
}
check 'sysfs alone: the same places, PCIe in place of NVLink' dgx_from_sysfs
dgx_from_hwloc() {
  only_hwloc dgx-h100 --json | holds '
    len(d["gpus"]) == 8 and len(d["ports"]) == 8 and d["ports"][0]["gbit_per_s"] == 0 and d["ports"][0]["guid"] == "0c42a10300a1b000"'
}
has_hwloc && check 'hwloc alone: ports without their rate' dgx_from_hwloc

pcie() {
  local from
  for from in "$@"; do
    $from pcie-4 --json | holds '
      [g["type"] for g in d["gpus"]] == ["a40"] * 4 and
      link(0, 1)["gbytes_per_s"] > link(0, 2)["gbytes_per_s"] > link(0, 3)["gbytes_per_s"] > 10 and
      all(l["kind"] == "PCIe" for l in d["links"]) and d["ports"][0]["link_layer"] == "Ethernet" and d["ports"][0]["gbit_per_s"] == 100' || return
  done
  "${1}" pcie-4 --gres-conf | grep -q '^Name=gpu Type=a40 File=/dev/nvidia3 Cores=4-7 Links=0,0,0,-1$'
}
sources=(only_sysfs)
has_hwloc && sources+=(both)
check 'four PCIe GPUs: a switch is nearer than a socket, a socket nearer than two' pcie "${sources[@]}"

rails() {
  only_sysfs dual-rail --json --fabric-file subnet.lst | holds '
    [p["nearest_gpus"] for p in d["ports"]] == [[0, 1], [2, 3]] and d["leaf"] == "hdr-leaf-2" and
    [p["subnet_prefix"] for p in d["ports"]] == ["fec0000000000000", "fec0000000000001"]'
}
check 'two rails: each port with the GPUs of its socket, subnets told apart' rails

no_infiniband() {
  only_sysfs no-infiniband --json | holds 'd["ports"][0]["device"] == "eno1" and d["ports"][0]["gbit_per_s"] == 25 and d["ports"][0]["link_layer"] == "Ethernet"' &&
    only_sysfs no-infiniband --json --fabric-file subnet.ibnet | holds 'd["leaf"] == ""'
}
check 'without InfiniBand: the Ethernet card, no switch' no_infiniband

broken() {
  local from
  for from in "${sources[@]}"; do
    $from broken --json | holds '
      len(d["gpus"]) == 2 and d["gpus"][0]["type"] == "" and [p["device"] for p in d["ports"]] == ["mlx5_1"] and d["ports"][0]["gbit_per_s"] == 0 and
      any("mlx5_0 port 1 is not active" in note for note in d["notes"])' || return
    $from broken && $from broken --gres-conf || return
  done
}
check 'a node with broken parts: what is left, and what was left out is said' broken

nothing() {
  local from
  for from in "${sources[@]}"; do
    $from empty --json | holds 'd["gpus"] == [] and d["ports"] == [] and d["published"] == {"v": 1}' && [[ -z $($from empty --gres-conf) ]] || return
  done
  mkdir void && "$swell" topo --sysfs-root void && "$swell" topo > /dev/null
}
check 'neither GPU nor HCA: a valid, smaller answer' nothing

bad_input() {
  printf '<topology' > cut.xml
  head -c 3000 dgx-h100/hwloc.xml > half.xml
  local arguments said
  for arguments in '--hwloc-xml cut.xml' '--hwloc-xml half.xml' '--hwloc-xml nowhere.xml' '--fabric-file nowhere'; do
    # shellcheck disable=SC2086
    if said=$("$swell" topo $arguments 2>&1); then
      printf 'accepted: %s\n' "$arguments"
      return 1
    fi
    printf '%s\n' "$said"
    [[ $(grep -c '^swell: ' <<< "$said") == 1 ]] || return
  done
}
check 'files that cannot be read are named in one line' bad_input

finish_tests
