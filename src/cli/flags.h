#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/numbers.h"

/// How a command declares one flag of its own. Values reach the program as they were written.
namespace fs::cli {

// CLI11 takes a positional "[a,b]" for the list a, b, for the value of "--flag=" the argument after it, and
// "--flag=true" where a flag takes no value. A mark in front of such values keeps them what they are; the
// functions below take it off again.

/// To be applied to every argument before CLI11 sees it. `plain`: it stands after "--", where nothing is a
/// flag.
std::string keep_verbatim(std::string argument, bool plain);
/// The argument as the user wrote it.
std::string verbatim(const std::string& kept);

/// A flag's text, or a single positional's.
CLI::Option* add_text(CLI::App& command, const std::string& names, std::optional<std::string>& value,
                      const std::string& help);
/// The same for the name of a file; an empty one is Error(usage).
CLI::Option* add_file(CLI::App& command, const std::string& names, std::optional<std::string>& path,
                      const std::string& help);
/// A flag that may be given several times.
CLI::Option* add_texts(CLI::App& command, const std::string& names, std::vector<std::string>& values,
                       const std::string& help);
/// A positional of any number of words.
CLI::Option* add_words(CLI::App& command, const std::string& name, std::vector<std::string>& words,
                       const std::string& help);

/// Throws Error(usage) naming `what` unless `value` is one of `choices`.
void check_choice(std::string_view value, std::string_view what, const std::vector<std::string>& choices);
/// One of a few words; any other is Error(usage). The help lists them.
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value,
                        std::vector<std::string> choices, const std::string& help);

/// A number in [lowest, highest]; NaN, signs of unsigned numbers and trailing text are Error(usage).
template <class Number, class Target>
CLI::Option* add_number(CLI::App& command, const std::string& names, Target& value, Number lowest,
                        Number highest, const std::string& help) {
  const std::string flag = verbatim(names.substr(0, names.find(',')));  // -np is declared as --np
  const auto read = [&value, flag, lowest, highest](const CLI::results_t& results) {
    value = parse_number<Number>(verbatim(results.back()), flag, lowest, highest);
    return true;
  };
  return command.add_option(names, read, help)->type_name("N")->expected(1);
}

}  // namespace fs::cli
