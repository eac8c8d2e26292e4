// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

/// Counts of calls of the fake driver.
struct FakeCounts {
  int waits, created, alive;
  int spoiled;  ///< captures, by a call that has no place there
};
using FakePut = void (*)(void* stream, double us);  ///< puts work on a stream
using FakeRun = void (*)(double us);                ///< lets every stream run on
using FakeRefuse = void (*)(int refuses);           ///< cuEventRecord() fails from now on
using FakeCapture = void (*)(int captures);         ///< streams are captured into a graph
using FakeFail = void (*)(int fails);               ///< cuEventQuery() fails from now on
using FakeCountsOf = FakeCounts (*)();
