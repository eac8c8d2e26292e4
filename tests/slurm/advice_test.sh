#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Messages to a researcher when submitting: about a good --elastic that this site cannot serve, and about a refused one.
# shellcheck disable=SC2317 # called by check
# shellcheck source=tests/slurm/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cluster_up --nodes 2 --gpus-per-node 4 --grace 40

# The controller looks at the site once it has begun: until then nothing is said.
site_is_known() { sbatch --hold --elastic=max=64 --gres=gpu:1 --wrap true 2>&1 | grep 'this cluster has 8'; }
check 'the controller knows the site soon after its start' within 20 site_is_known

hears() { # WORDS sbatch-arguments...: accepted, and the words are said once, on standard error
  local words=$1
  shift
  sbatch --parsable --hold "$@" --gres=gpu:2 --wrap true > id 2> said || { cat said; return 1; }
  cat said
  [[ $(cat id) =~ ^[0-9]+$ && $(grep -cF -- "$words" said) == 1 ]]
}
check 'a type in the wrong case' hears 'types=H100: no node has GPUs of that name; write types=h100' --elastic=types=H100
check 'a type that no node has' hears 'types=b200: no node has GPUs of that type; there are h100' --elastic=types=b200
check 'a maximum beyond the cluster' hears 'max=64 is 64 GPUs, and this cluster has 8' --elastic=max=64
check 'a grace above GraceTime' hears 'grace=90: where Slurm itself takes lent GPUs back, this site gives 40 s' --elastic=grace=90
check 'a size that max does not allow' hears '16 is never reached, since max=4x allows 8 GPUs' --elastic=max=4x,sizes=2/8/16

says_nothing() {
  sbatch --parsable --hold --elastic=max=8,grace=40,types=h100,sizes=2/4/8 --gres=gpu:2 --wrap true 2> said && [[ ! -s said ]] &&
    sbatch --parsable --hold --gres=gpu:2 --wrap true 2> said && [[ ! -s said ]]
}
check 'nothing is said of what the site can serve, nor of jobs without --elastic' says_nothing

salloc_and_srun() {
  salloc --elastic=max=64 --gres=gpu:2 true 2> said && grep -q 'this cluster has 8' said &&
    srun --elastic=max=64 --gres=gpu:2 true 2> said && grep -q 'this cluster has 8' said || { cat said; return 1; }
}
check 'salloc and srun say it too' salloc_and_srun

grace_is_cut() {
  sbatch --hold --elastic=grace=86400 --gres=gpu:2 --wrap true 2> said && grep -q 'grace=86400 is cut to 600 s: this site gives no job more (MaxGrace)' said || { cat said; return 1; }
}
check 'a grace above that of the site is cut, and the owner reads so' grace_is_cut

refused() { # REASON LAST-WORDS COMMAND...
  local reason=$1 last=$2
  shift 2
  "$@" > said 2>&1 && return 1
  cat said
  grep -qF -- "$reason" said && [[ $(tail -n 1 said) == *"$last" ]] && ! grep -q 'Unspecified error' said
}
check 'sizes with commas are refused with the sizes as they are written' \
  refused 'sizes=2/4/8' '' sbatch --elastic=sizes=2,4,8 --gres=gpu:2 --wrap true
check 'a bad --elastic that the server finds ends in words about GPUs' \
  refused 'max=zz is not valid' 'Invalid generic resource (gres) specification' env SWELL_ELASTIC=max=zz sbatch --gres=gpu:2 --wrap true
check 'the expansion QOS ends in words about permission' \
  refused 'for companions' 'Access/permission denied' sbatch --qos=expansion --gres=gpu:1 --wrap true
check 'an elastic heterogeneous job ends in words about support' \
  refused 'heterogeneous job cannot be elastic' 'not supported on this system' sbatch --elastic --gres=gpu:1 : --gres=gpu:1 --wrap true

finish_tests
