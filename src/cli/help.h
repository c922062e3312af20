#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace fs::cli {

/// Lays out --help: two columns, wrapped, without CLI11's notes on which flags need or exclude which.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;
};

/// CLI11's account of a usage error, as one line that names the argument and says where to look.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error);

}  // namespace fs::cli
