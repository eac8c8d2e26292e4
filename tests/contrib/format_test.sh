#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every C++ file reads as .clang-format says, and every sentence and title as docs/style.md asks; contrib/format --check finds what does not.
# shellcheck disable=SC2317 # called by check
set -u -o pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 1
skip() { printf '1..0 # SKIP %s\n' "$1"; exit 77; }
command -v clang-format-14 > /dev/null || skip 'no clang-format-14: run contrib/setup'
git -C "$top" rev-parse --is-inside-work-tree > /dev/null 2>&1 || skip 'not a git checkout: which files are ours is not known'
# shellcheck source=tests/support/tap.sh
source "$top/tests/support/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check 'every C++ file, sentence and title of this tree passes' "$top/contrib/format" --check

# A tree of three commits whose main has an upstream, and a branch with one more.
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
commit() { git -C "$work/tree" add -A && git -C "$work/tree" commit -q --allow-empty -m "$1"; }
makes_a_tree() {
  git init -q -b main "$work/tree" && mkdir -p "$work/tree/contrib/lib" "$work/tree/man" && cp "$top/contrib/format" "$work/tree/contrib/" &&
    cp "$top/contrib/lib/prose.py" "$work/tree/contrib/lib/" && cp "$top/.clang-format" "$work/tree/" &&
    cat > "$work/tree/good.cc" << 'GOOD' && commit 'Old titles are left alone' && commit 'tree: begin' &&
// Who may call this? Anybody.
/// Returns why job 7 is not there. It is no longer one: "there is no job 7".
const char* f() { return "there is no job 7; it is no faster, Of course"; }
GOOD
    git clone -q --bare "$work/tree" "$work/upstream" && git -C "$work/tree" remote add origin "$work/upstream" && git -C "$work/tree" fetch -q &&
    git -C "$work/tree" branch -q --set-upstream-to=origin/main main && git -C "$work/tree" checkout -q -b branch && commit 'tree: add nothing'
}
check 'a tree is made' makes_a_tree
passes() { "$work/tree/contrib/format" --check > "$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
check 'it passes: questions, "there is no" and "is no longer" are English, and older titles are not looked at' passes

no=no # this file must pass, too
# finds FILE TEXT EXPECTED: with the text as FILE the check fails, and names the place.
finds() {
  printf '%s\n' "$2" > "$work/tree/$1" && git -C "$work/tree" add "$1" || return 1
  "$work/tree/contrib/format" --check > "$work/said" 2>&1
  local status=$?
  git -C "$work/tree" rm -q -f --cached "$1" && rm "$work/tree/$1"
  ((status == 1)) && grep -F -- "$1${3:+:$3}" "$work/said" || { printf 'exit %s\n' "$status"; cat "$work/said"; return 1; }
}
check 'a comment opens with Of' finds a.cc $'int i;\n/// Of the job.\nint j;' '2: a sentence opens with "Of"'
check 'a second sentence opens with What, on its second line' finds a.cc $'// Is kept.\n// Removes one of them. What\n// stays is kept.\nint j;' '2: a sentence opens with "What"'
check 'a comment behind code opens with Who' finds a.cc 'int j;  // Who waits.' '1: a sentence opens with "Who"'
check 'a comment in the form of C opens with Whose' finds a.h $'/* Whose job it is. */\nint j;' '1: a sentence opens with "Whose"'
check 'a docstring opens with Nor' finds a.py $'def f():\n    """Nor this."""' '2: a sentence opens with "Nor"'
check 'a comment of a script opens with What' finds a.sh $'true\n# What is left.' '2: a sentence opens with "What"'
check 'a Makefile opens with Of' finds Makefile.am '# Of the tests.' '1: a sentence opens with "Of"'
check 'a man page opens with Who' finds man/a.1 $'.TH A 1\n.PP\nWho asks has it.' '3: a sentence opens with "Who"'
check 'a string of C++ says is no' finds a.cc "const char* s = \"{} is $no address\";" '1: say "is not a"'
check 'a string of Python says are no' finds a.py "raise ValueError(\"these are $no numbers\")" '1: say "is not a"'
check 'a script says is no' finds a.sh "die '7 is $no companion'" '1: say "is not a"'
check 'a C++ file is not formatted' finds a.cc 'int   j;' ''

# refuses TITLE WHY
refuses() {
  commit "$1" && ! "$work/tree/contrib/format" --check > "$work/said" 2>&1 && grep -F -- "$2" "$work/said"
  local status=$?
  git -C "$work/tree" reset -q --hard HEAD~1
  ((status == 0)) || { cat "$work/said"; return 1; }
}
check 'a title has 73 columns' refuses "tree: add $(printf 'x%.0s' {1..63})" '73 columns, at most 72'
check 'a title has no area' refuses 'add a test' 'must read "area: imperative"'
check 'a title is a statement' refuses 'tree: nothing is left' '"nothing" is not an imperative'
check 'a title tells the past' refuses 'tree: added a test' '"added" is not an imperative'
check 'a title is capitalised' refuses 'tree: Add a test' 'must read "area: imperative"'
takes_72() { commit "tree: add $(printf 'x%.0s' {1..62})" && passes && git -C "$work/tree" reset -q --hard HEAD~1; }
check 'a title of 72 columns passes' takes_72

without_history() {
  git clone -q --depth 1 "file://$work/tree" "$work/shallow" && git -C "$work/shallow" remote remove origin && "$work/shallow/contrib/format" --check > "$work/said" 2>&1 &&
    grep -F 'titles of commits skipped' "$work/said" || { cat "$work/said"; return 1; }
}
check 'a clone without history skips titles, and says so' without_history
finish_tests
