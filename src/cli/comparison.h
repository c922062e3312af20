#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "cli/diff_report.h"
#include "cli/diff_side.h"
#include "cli/next_token.h"
#include "engine/diff.h"
#include "engine/recorder.h"

namespace fs::cli {

/// What is compared, and how.
struct ComparisonOptions {
  engine::TapChoice taps;
  engine::Tolerance tolerance;
  std::size_t keep = 1;  ///< worst elements of a tap
  bool inject = false;
  engine::TapObserver* record_a = nullptr;
};

/// Compares the two sides tap by tap, one prompt after another, and gathers what it finds.
class Comparison {
 public:
  Comparison(ComparisonOptions options, std::size_t n_layers, Progress progress)
      : options_(std::move(options)), report_(options_.tolerance, n_layers), progress_(std::move(progress)) {}

  /// Whichever sides run, run `tokens`; two sides that run also do `decode` more steps, both fed with what A
  /// finds most likely. `where` names the prompt; empty if there is only one.
  void compare(Sides& sides, const std::vector<TokenId>& tokens, std::size_t decode,
               const std::string& where);

  /// Side B token by token against side B in one pass: what a cache or a position gets wrong shows here.
  /// Holds some layers' taps at a time, so long prompts take several runs.
  void compare_with_itself(const Side& b, const std::vector<TokenId>& tokens, const std::string& where);

  /// What the two running sides think of the token after the last prompt or step.
  const std::optional<NextToken>& next_token() const { return next_token_; }
  const DiffReport& report() const { return report_; }
  /// Taps of side B that side A's recording does not have.
  std::size_t not_compared() const { return not_compared_; }

 private:
  engine::DiffObserver::Options observer(const std::string& where);
  void two_running(const Sides& sides, const std::vector<TokenId>& tokens, std::size_t decode,
                   const std::string& where);
  /// Runs one side and keeps the chosen taps.
  engine::Recording record(const Side& side, const std::vector<TokenId>& tokens,
                           const engine::TapChoice& taps);
  /// Runs side B, in passes of `chunk` tokens, against a recorded side A.
  void run_against(engine::TapSource& a, const Side& b, const std::vector<TokenId>& tokens, std::size_t chunk,
                   engine::DiffObserver::Options options);

  ComparisonOptions options_;
  DiffReport report_;
  Progress progress_;
  std::optional<NextToken> next_token_;
  std::size_t not_compared_ = 0;
};

}  // namespace fs::cli
