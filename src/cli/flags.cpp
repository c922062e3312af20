#include "cli/flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace fs::cli {
namespace {

constexpr char verbatim_mark = '\x1e';

/// Whether CLI11, or verbatim(), would make something else of it.
bool needs_mark(std::string_view argument, bool plain) {
  return argument.starts_with(verbatim_mark) || (argument.starts_with('[') && argument.ends_with(']')) ||
         (plain && argument.starts_with("--"));
}

/// Where the value of "--name=value" begins.
std::size_t value_in(std::string_view argument) {
  const std::size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
  return equals == std::string_view::npos ? equals : equals + 1;
}

/// Flags of llama.cpp that CLI11 would read as -n p and -o e: -np becomes --np, and -np again where it was
/// text. `dash`: what has been put in front, or nothing.
bool has_two_letters(std::string_view argument, std::string_view dash) {
  const auto is = [&](std::string_view name) {
    return argument == name || (argument.starts_with(name) && argument[name.size()] == '=');
  };
  if (!argument.starts_with(dash)) return false;
  argument.remove_prefix(dash.size());
  return is("-np") || is("-oe");
}

}  // namespace

std::string keep_verbatim(std::string argument, bool plain) {
  if (needs_mark(argument, plain)) return verbatim_mark + argument;
  if (plain) return argument;
  if (has_two_letters(argument, "")) argument.insert(0, 1, '-');
  if (const std::size_t value = value_in(argument); value != std::string::npos) {
    argument.insert(value, 1, verbatim_mark);
  }
  return argument;
}

std::string verbatim(const std::string& kept) {
  if (kept.starts_with(verbatim_mark)) return kept.substr(1);
  // "--name=value" that was no flag but text: the value of the flag before it.
  std::string text = kept;
  if (const std::size_t value = value_in(text); value < text.size() && text[value] == verbatim_mark) {
    text.erase(value, 1);
  }
  return has_two_letters(text, "-") ? text.substr(1) : text;
}

CLI::Option* add_text(CLI::App& command, const std::string& names, std::optional<std::string>& value,
                      const std::string& help) {
  const auto read = [&value](const CLI::results_t& results) {
    value = verbatim(results.back());
    return true;
  };
  return command.add_option(names, read, help)->type_name("TEXT")->expected(1);
}

CLI::Option* add_file(CLI::App& command, const std::string& names, std::optional<std::string>& path,
                      const std::string& help) {
  const std::string flag = names.substr(names.rfind(',') + 1);
  const auto read = [&path, flag](const CLI::results_t& results) {
    path = verbatim(results.back());
    if (path->empty()) fail(ExitCode::usage, "{}: the file name is empty", flag);
    return true;
  };
  return command.add_option(names, read, help)->type_name("FILE")->expected(1);
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
    check_choice(value, verbatim(name), choices);  // -oe is declared as --oe
    return true;
  };
  return command.add_option(name, read, fmt::format("{}: {}", help, fmt::join(choices, ", ")))
      ->type_name("NAME")
      ->expected(1);
}

}  // namespace fs::cli
