#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fs::engine {

/// A CUDA card, usable or not.
struct Device {
  std::string name;
  int major = 0, minor = 0;      ///< compute capability
  std::size_t memory = 0;        ///< bytes
  std::string unusable_because;  ///< empty: usable
};
struct Devices {
  std::vector<Device> all;   ///< in the order of the numbers that --device takes
  std::string none_because;  ///< where there are none
};

/// The cards of --backend cuda, or what the emulator stands in for. Never throws for want of a card.
Devices cuda_devices(std::string_view backend);

}  // namespace fs::engine
