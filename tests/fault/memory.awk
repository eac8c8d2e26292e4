# SPDX-License-Identifier: GPL-2.0-or-later
#
# Reads lines "SECONDS NAME PID KIB FILES" and prints each process whose memory or descriptors are not flat: of those that
# were seen for `settle` seconds and as long again, the least of the last third may exceed the most of the time from
# `settle` to the middle by `room` KiB and 16 files.
$2 == name {
  n = ++count[$3]
  at[$3, n] = $1
  kib[$3, n] = $4
  files[$3, n] = $5
}
END {
  for (pid in count) {
    n = count[pid]
    first = at[pid, 1]
    length_s = at[pid, n] - first
    if (length_s < 2 * settle) continue
    before = before_files = -1
    after = after_files = -1
    for (i = 1; i <= n; i++) {
      t = at[pid, i] - first
      if (t >= settle && t <= settle + (length_s - settle) / 2) {
        if (kib[pid, i] > before) before = kib[pid, i]
        if (files[pid, i] > before_files) before_files = files[pid, i]
      } else if (t >= length_s - (length_s - settle) / 3) {
        if (after < 0 || kib[pid, i] < after) after = kib[pid, i]
        if (after_files < 0 || files[pid, i] < after_files) after_files = files[pid, i]
      }
    }
    if (before < 0 || after < 0) continue # nobody looked then
    watched++
    if (after > before + room) printf "%s %s grew from %s to %s KiB within %s s\n", name, pid, before, after, length_s
    if (after_files > before_files + 16) printf "%s %s had %s files open, then %s\n", name, pid, before_files, after_files
    printf "# %s %s: %s KiB, then %s KiB, over %s s\n", name, pid, before, after, length_s > "/dev/stderr"
  }
  if (!watched) print "no " name " was watched for " 2 * settle " s"
}
