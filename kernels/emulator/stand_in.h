#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace fs::gpu::emulator {

/// The machine that the emulator stands in for. Tests set it; it has one large card of compute capability 9.0
/// otherwise.
struct StandIn {
  struct Card {
    std::string name = "emulated device";
    int major = 9, minor = 0;
    std::size_t memory = std::size_t{1} << 36U;  ///< bytes
    unsigned multiprocessors = 4;                ///< that a cooperative launch may use; 0: there is none
    std::size_t cache = std::size_t{1} << 16U;   ///< bytes
  };
  std::vector<Card> cards = {Card{}};
  std::string no_driver;  ///< why there are no cards, if there are none
  std::string
      failing_kernel;  ///< fails when it runs, as a kernel does on a card: whoever waits for it is told
};
StandIn& stand_in();
/// The card chosen with select_device().
const StandIn::Card& selected_card();

}  // namespace fs::gpu::emulator
