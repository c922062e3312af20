#include "cli/run.h"

int main(int argc, char** argv) { return fs::cli::run(argc, argv); }
