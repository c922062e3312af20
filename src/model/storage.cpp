#include "model/storage.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fs::model {

std::shared_ptr<std::byte> weight_memory(std::size_t bytes, std::string_view what) {
  if (bytes == 0) return nullptr;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ExitCode::failed, "no memory for {} bytes of {}: {}", bytes, what, std::strerror(errno));
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: small pages do as well
  return {static_cast<std::byte*>(memory), [bytes](std::byte* address) { ::munmap(address, bytes); }};
}

}  // namespace fs::model
