// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Declares the part of CUDA's driver API that the profiler's clock calls;
// runtime/device/cuda_driver.h declares the part that the runtime calls. Results are 0 or an
// error's number.
namespace swell::profiler::cuda {

using EventCreate = int (*)(void** event, unsigned flags);
using EventRecord = int (*)(void* event, void* stream);
using EventQuery = int (*)(void* event);
using EventElapsedTime = int (*)(float* milliseconds, void* first, void* second);
using EventDestroy = int (*)(void* event);
using StreamIsCapturing = int (*)(void* stream, int* status);
using ExchangeCaptureMode = int (*)(int* mode);
inline constexpr int kRelaxedCapture = 2;  ///< CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr int kNotReady = 600, kCaptureImplicit = 906;

}  // namespace swell::profiler::cuda
