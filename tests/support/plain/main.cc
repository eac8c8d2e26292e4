// SPDX-License-Identifier: GPL-2.0-or-later
#include "criterion/criterion.h"

int main() { return plain::run() == 0 ? 0 : 1; }
