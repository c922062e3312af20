#include "emulator/pending_copies.h"

#include <cstdint>
#include <cstring>

#include "emulator/fault.h"
#include "emulator/sanitizers.h"

namespace fs::gpu::emulator {

void PendingCopies::copy16(void* to, const void* from, bool valid) {
  const auto misaligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 != 0;
  };
  if (misaligned(to) || misaligned(from)) fault("cp.async of 16 bytes at an address not aligned to 16");
  Copy copy{to, {}};
  if (valid) {
    note_read(from, sizeof copy.bytes);
    std::memcpy(copy.bytes, from, sizeof copy.bytes);
  }
  note_write(to, sizeof copy.bytes);
  std::memset(to, 0xFF, sizeof copy.bytes);
  open_.push_back(copy);
}

void PendingCopies::commit() { groups_.push_back(std::exchange(open_, {})); }

void PendingCopies::wait(std::size_t groups) {
  while (groups_.size() > groups) {
    for (const Copy& copy : groups_.front()) {
      note_write(copy.to, sizeof copy.bytes);
      std::memcpy(copy.to, copy.bytes, sizeof copy.bytes);
    }
    groups_.pop_front();
  }
}

}  // namespace fs::gpu::emulator
