#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The engine: transformers models under many plans, by pytest.
#   engine_test.sh [arguments of pytest]
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/pytorch/pytest_lib.sh
source "$here/pytest_lib.sh"
need torch transformers pytest
run_pytest "$here/engine" "$@"
finish
