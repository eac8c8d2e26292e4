# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Functions of contrib/check and contrib/quickstart, for root: the daemons of a private cluster run as Slurm's user and jobs as others, who
# all read below the checkout. Where it lies in a folder that is closed to others, as /root, they run in a copy that is not.

# shellcheck source=contrib/lib/source_files.sh
source "$(dirname "${BASH_SOURCE[0]}")/source_files.sh"

# closed_folder PATH: prints the folder on the way to PATH, PATH included, that others may not pass; fails where there is none.
closed_folder() {
  local folder=$1
  while [[ $folder != / ]]; do
    if [[ -d $folder && $(stat -Lc %A "$folder") != *[xt] ]]; then
      printf '%s\n' "$folder"
      return
    fi
    folder=$(dirname "$folder")
  done
  return 1
}

# open_copy TOP: sets `copy` to a copy of the checkout TOP that others can read, or to nothing where TOP is one itself or where
# not root asks. Fails with one line where none can be made.
open_copy() {
  local top=$1 closed cache=${SWELL_CACHE:-/var/tmp/swell-cache-$UID}
  copy=''
  ((EUID == 0)) || return 0
  closed=$(closed_folder "$top") || return 0
  copy=$cache/checkout-$(printf '%s' "$top" | cksum | cut -d ' ' -f 1)
  if ! { mkdir -p -m 755 "$cache" && [[ -O $cache && ! -L $cache ]] && ! closed_folder "$cache" > /dev/null && mkdir -p -m 755 "$copy" &&
    copy_sources "$top" "$copy" && chmod -R go+rX,go-w "$copy"; }; then
    printf '%s is closed to others, who must read below it, and no copy could be made in %s: set SWELL_CACHE to a folder of your own that others can read\n' \
      "$closed" "$cache" >&2
    return 1
  fi
  printf '%s is closed to others, and the users of a cluster must read below it: this runs in a copy, %s\n' "$closed" "$copy"
}
