// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/device_task.h"

#include "base/byte_message.h"

namespace swell::runtime {

namespace {

constexpr std::size_t kMaxId = 256;

}  // namespace

std::string write(const DeviceTask& task) {
  ByteWriter writer;
  writer.put(task.kind)
      .put(task.slab)
      .put(task.bytes)
      .put(static_cast<std::uint32_t>(task.runs.size()));
  for (const Run& run : task.runs) writer.put(run.from).put(run.to).put(run.bytes);
  if (task.kind == DeviceTask::Kind::nccl_join) writer.text(task.id).put(task.rank);
  if (task.kind == DeviceTask::Kind::map_handle) writer.text(task.id);
  return writer.take();
}

Result<DeviceTask> read_task(std::string_view body) {
  ByteReader reader(body);
  DeviceTask task;
  const auto kind = reader.get<std::uint8_t>();
  if (kind >= DeviceTask::kKinds) reader.fail();
  else task.kind = static_cast<DeviceTask::Kind>(kind);
  task.slab = reader.get<std::uint64_t>();
  task.bytes = reader.get<std::uint64_t>();
  for (auto left = reader.count(24); reader.good() && left > 0; --left) {
    Run run;
    run.from = reader.get<std::uint64_t>();
    run.to = reader.get<std::uint64_t>();
    run.bytes = reader.get<std::uint64_t>();
    task.runs.push_back(run);
  }
  if (task.kind == DeviceTask::Kind::nccl_join) {
    task.id = reader.text(kMaxId);
    task.rank = reader.get<std::uint8_t>();
  }
  if (task.kind == DeviceTask::Kind::map_handle) task.id = reader.text(kMaxId);
  if (!reader.done()) return Error("a task for a GPU cannot be read");
  return task;
}

}  // namespace swell::runtime
