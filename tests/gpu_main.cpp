// Runs a test program on the card; without one it says so and exits with 77, which ctest takes for skipped.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "runtime.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string reason;
  if (fs::gpu::devices(reason).empty()) {
    std::cout << "not checked: no CUDA device here (" << reason << ")\n";
    return 77;
  }
  return RUN_ALL_TESTS();
}
