# SPDX-License-Identifier: GPL-2.0-or-later
#
# Reads `scontrol -o -d show job` and prints each broken invariant of docs/architecture.md: a job never below its
# basic demand, no GPU in two allocations, no companion without its running parent, parent and companion
# name each other.

function field(name,   at, rest) {
  at = index($0, " " name "=")
  if (at == 0) return index($0, name "=") == 1 ? substr($1, length(name) + 2) : ""
  rest = substr($0, at + length(name) + 2)
  sub(/ .*/, "", rest)
  return rest
}

function tag(   at, rest) {
  at = index($0, "swell[")
  if (at == 0) return ""
  rest = substr($0, at + 6)
  sub(/\].*/, "", rest)
  return rest
}

function word(text, key,   n, words, i) {
  n = split(text, words, " ")
  for (i = 1; i <= n; i++) if (index(words[i], key "=") == 1) return substr(words[i], length(key) + 2)
  return ""
}

# Each "Nodes=a CPU_IDs=.. GRES=gpu:h100:4(IDX:0-3)" of a job: counts its GPUs and notes who has which.
function take_gpus(id,   rest, node, gres, indices, n, ranges, i, ends, gpu, held) {
  rest = $0
  held = 0
  while (match(rest, / Nodes=[^ ]+ CPU_IDs=[^ ]+ Mem=[^ ]+ GRES=[^ ]*/)) {
    node = gres = substr(rest, RSTART, RLENGTH)
    rest = substr(rest, RSTART + RLENGTH)
    sub(/^ Nodes=/, "", node)
    sub(/ .*/, "", node)
    sub(/.*GRES=/, "", gres)
    if (!match(gres, /IDX:[0-9,-]+/)) continue
    indices = substr(gres, RSTART + 4, RLENGTH - 4)
    n = split(indices, ranges, ",")
    for (i = 1; i <= n; i++) {
      if (split(ranges[i], ends, "-") == 1) ends[2] = ends[1]
      for (gpu = ends[1] + 0; gpu <= ends[2] + 0; gpu++) {
        held++
        if ((node, gpu) in owner) print "GPU " gpu " of " node " is in jobs " owner[node, gpu] " and " id
        owner[node, gpu] = id
      }
    }
  }
  return held
}

{
  id = field("JobId")
  state = field("JobState")
  text = tag()
  running[id] = state == "RUNNING" || state == "SUSPENDED"
  if (!running[id]) next
  held[id] = take_gpus(id)
  if (word(text, "parent") != "") parent_of[id] = word(text, "parent")
  if (word(text, "elastic") != "") {
    basic[id] = word(text, "basic")
    lent[id] = word(text, "lent")
    named[id] = word(text, "companions")
    requested[id] = $0
  }
}

END {
  for (id in basic) {
    if (held[id] < basic[id]) print "job " id " holds " held[id] " GPUs, its basic demand is " basic[id]
    sum = 0
    n = named[id] == "-" || named[id] == "" ? 0 : split(named[id], entries, ";")
    for (i = 1; i <= n; i++) {
      split(entries[i], parts, ":")
      if (!running[parts[1]]) print "job " id " names companion " parts[1] ", which does not run"
      else if (parent_of[parts[1]] != id) print "job " id " names companion " parts[1] ", which does not name it"
      else sum += held[parts[1]]
      is_named[id, parts[1]] = 1
    }
    if (sum != lent[id] + 0) print "job " id " says lent=" lent[id] ", its companions hold " sum
  }
  for (id in parent_of) {
    if (!running[parent_of[id]]) print "companion " id " outlives its parent, job " parent_of[id]
    else if (!((parent_of[id], id) in is_named)) print "job " parent_of[id] " does not name its companion " id
  }
}
