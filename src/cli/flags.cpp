#include "cli/flags.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace fs::cli {
namespace {

constexpr char verbatim_mark = '\x1e';

}  // namespace

std::string keep_verbatim(std::string argument) {
  const bool looks_like_list = argument.starts_with('[') && argument.ends_with(']');
  return looks_like_list || argument.starts_with(verbatim_mark) ? verbatim_mark + argument : argument;
}

std::string verbatim(const std::string& kept) {
  return kept.starts_with(verbatim_mark) ? kept.substr(1) : kept;
}

CLI::Option* add_text(CLI::App& command, const std::string& names, std::optional<std::string>& value,
                      const std::string& help) {
  const auto read = [&value](const CLI::results_t& results) {
    value = verbatim(results.back());
    return true;
  };
  return command.add_option(names, read, help)->type_name("TEXT")->expected(1);
}

CLI::Option* add_texts(CLI::App& command, const std::string& names, std::vector<std::string>& values,
                       const std::string& help) {
  // One value an occurrence: `--stop A PROMPT` leaves PROMPT alone.
  return add_words(command, names, values, help)->type_name("TEXT")->allow_extra_args(false);
}

CLI::Option* add_words(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                       const std::string& help) {
  const auto read = [&words](const CLI::results_t& results) {
    words.clear();
    for (const std::string& word : results) words.push_back(verbatim(word));
    return true;
  };
  return command.add_option(name, read, help)
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args();
}

void check_choice(std::string_view value, std::string_view what, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  fail(ExitCode::usage, "{}: \"{}\" is unknown; expected one of {}", what, value, fmt::join(choices, ", "));
}

CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value,
                        std::vector<std::string> choices, const std::string& help) {
  const auto read = [&value, name, choices](const CLI::results_t& results) {
    value = verbatim(results.back());
    check_choice(value, name, choices);
    return true;
  };
  return command.add_option(name, read, fmt::format("{}: {}", help, fmt::join(choices, ", ")))
      ->type_name("NAME")
      ->expected(1);
}

}  // namespace fs::cli
