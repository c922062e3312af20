#pragma once
#include "gpu.h"

/// What head and sample share: the best logit, the lowest id of equals.
namespace fs::gpu {
inline namespace FS_GPU_BUILD {

/// Whether (a, a_id) comes before (b, b_id): the larger logit, then the lower id.
FS_DEVICE bool better(float a, int a_id, float b, int b_id) { return a > b || (a == b && a_id < b_id); }

/// The best of the lanes', in every lane.
FS_DEVICE void best_of_lanes(float& logit, int& id) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = shuffle_xor(logit, distance);
    const int other_id = shuffle_xor(id, distance);
    if (better(other, other_id, logit, id)) {
      logit = other;
      id = other_id;
    }
  }
}

/// Sum over the lanes, in every lane.
FS_DEVICE double lanes_total(double value) {
  for (int distance = 16; distance > 0; distance /= 2) value += shuffle_xor(value, distance);
  return value;
}

}  // namespace FS_GPU_BUILD
}  // namespace fs::gpu
